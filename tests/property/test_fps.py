"""Properties of `fps` and `fps-paper`, the appendix's fixed point above all."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from drld.allocators import ALLOCATORS
from drld.allocators.base import Allocator, InForce
from drld.estimate.flows import unbottlenecked_rate
from drld.model import Demand, GlobalView

from ..factories import TICK_NS

LIMIT = 1_250_000.0
FPS = ("fps", "fps-paper")


def saturated(flow_rates: list[float]) -> Demand:
    total = sum(flow_rates)
    return Demand(
        rate=total,
        instant_rate=total,
        flow_rate=unbottlenecked_rate(flow_rates),
        long_rate=total,
        flows=len(flow_rates),
        drop_ratio=0.01,
        first=False,
        idle=False,
        fastest_rate=max(flow_rates),
    )


def in_force() -> InForce:
    return InForce(rate=LIMIT, burst=75_000, static_rate=LIMIT / 2, static_burst=37_500)


def make(name: str) -> Allocator:
    return ALLOCATORS[name](ALLOCATORS[name].Parameters())


def settle(name: str, flow_rates: list[float], remote: float) -> tuple[float, float]:
    """Weight and local limit that a limiter with these flows arrives at."""
    allocator = make(name)
    view = GlobalView(remote=remote, connected=frozenset({"other"}), age_ns=0)
    demand = replace(saturated(flow_rates), first=True)
    for _ in range(60):
        allocation = allocator.allocate(demand, view, in_force(), TICK_NS)
        demand = replace(demand, first=False)
    assert allocation.local_limit is not None
    return allocation.value, allocation.local_limit


@pytest.mark.parametrize("name", FPS)
@given(
    limiters=st.lists(
        st.tuples(st.integers(1, 20), st.lists(st.floats(0, 0.39), max_size=5)),
        min_size=2,
        max_size=6,
    )
)
def test_the_ideal_allocation_is_a_fixed_point(
    name: str,
    limiters: list[tuple[int, list[float]]],
) -> None:
    """Appendix: w_i = l_i a_i / (l_i - B_i), and those weights give back the ideal l_i.

    Each limiter has a_i unbottlenecked flows at the fair rate and others bottlenecked at a
    fraction of it (below the 0.4 that the estimator tells apart).
    """
    units = sum(count + sum(slow) for count, slow in limiters)
    fair = LIMIT / units
    ideal = [fair * (count + sum(slow)) for count, slow in limiters]
    weights = [
        limit * count / (limit - fair * sum(slow))
        for limit, (count, slow) in zip(ideal, limiters, strict=True)
    ]
    for index, (count, slow) in enumerate(limiters):
        remote = sum(weights) - weights[index]
        flow_rates = [fair] * count + [fair * part for part in slow]
        weight, local_limit = settle(name, flow_rates, remote)
        assert weight == pytest.approx(weights[index])
        assert local_limit == pytest.approx(ideal[index])


@given(st.integers(1, 5), st.integers(1, 5), st.floats(1e-4, 1))
def test_the_papers_weight_climbs_to_the_fixed_point_from_what_slow_start_showed(
    own: int, remote: int, part: float
) -> None:
    """The reciprocal of the weight goes on to f/L + f W/L of itself: a contraction, as f W < L."""
    allocator = make("fps-paper")
    view = GlobalView(remote=remote, connected=frozenset({"other"}), age_ns=0)
    fair = LIMIT / (own + remote)
    first = replace(saturated([part * fair]), first=True)
    values = [allocator.allocate(first, view, in_force(), 10 * TICK_NS).value]
    for _ in range(300):
        allocation = allocator.allocate(saturated([fair] * own), view, in_force(), 10 * TICK_NS)
        values.append(allocation.value)
    assert values == pytest.approx(sorted(values))
    assert values[-1] == pytest.approx(own)


@pytest.mark.parametrize("name", FPS)
@given(
    flow_rates=st.lists(st.floats(1, 1e7), max_size=64),
    remote=st.floats(0, 1e6),
    drop_ratio=st.floats(0, 1),
    first=st.booleans(),
    idle=st.booleans(),
)
def test_any_demand_and_view_give_a_limit_within_the_limit(
    name: str, *, flow_rates: list[float], remote: float, drop_ratio: float, first: bool, idle: bool
) -> None:
    assume(not (first and idle))
    total = 0.0 if idle else sum(flow_rates)
    allocator = make(name)
    view = GlobalView(remote=remote, connected=frozenset({"other"}), age_ns=0)
    demand = Demand(
        rate=total,
        instant_rate=total,
        flow_rate=None if idle else unbottlenecked_rate(flow_rates),
        long_rate=total,
        flows=len(flow_rates),
        drop_ratio=drop_ratio,
        first=first,
        idle=idle,
        fastest_rate=None if idle else max(flow_rates, default=None),
    )
    for _ in range(3):
        allocation = allocator.allocate(demand, view, in_force(), TICK_NS)
        assert allocation.local_limit is not None
        assert 0 <= allocation.local_limit <= LIMIT * (1 + 1e-9)
        assert allocation.value >= 0
        assert allocation.enforcement.fill_rate >= 0
        assert allocation.enforcement.depth is not None
        assert allocation.enforcement.depth >= 18_000


@pytest.mark.parametrize("name", FPS)
@given(counts=st.lists(st.integers(1, 100), min_size=2, max_size=20))
def test_equal_views_make_the_local_limits_sum_to_the_limit(name: str, counts: list[int]) -> None:
    fair = LIMIT / sum(counts)
    limits = [settle(name, [fair] * count, sum(counts) - count)[1] for count in counts]
    assert sum(limits) == pytest.approx(LIMIT)
