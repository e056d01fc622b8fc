"""Properties of FPS, the appendix's fixed point above all."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from drld.allocators.base import InForce
from drld.allocators.fps import FlowProportionalShare, FpsParameters
from drld.estimate.flows import unbottlenecked_rate
from drld.model import Demand, GlobalView

from ..factories import TICK_NS

LIMIT = 1_250_000.0


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
    )


def in_force() -> InForce:
    return InForce(rate=LIMIT, burst=75_000, static_rate=LIMIT / 2, static_burst=37_500)


def settle(flow_rates: list[float], remote: float) -> tuple[float, float]:
    """Weight and local limit that a limiter with these flows arrives at."""
    allocator = FlowProportionalShare(FpsParameters())
    view = GlobalView(remote=remote, connected=frozenset({"other"}), age_ns=0)
    for _ in range(60):
        allocation = allocator.allocate(saturated(flow_rates), view, in_force(), TICK_NS)
    assert allocation.local_limit is not None
    return allocation.value, allocation.local_limit


@given(
    st.lists(
        st.tuples(st.integers(1, 20), st.lists(st.floats(0, 0.39), max_size=5)),
        min_size=2,
        max_size=6,
    )
)
def test_the_ideal_allocation_is_a_fixed_point(
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
        weight, local_limit = settle([fair] * count + [fair * part for part in slow], remote)
        assert weight == pytest.approx(weights[index])
        assert local_limit == pytest.approx(ideal[index])


@given(
    st.lists(st.floats(1, 1e7), max_size=64),
    st.floats(0, 1e6),
    st.floats(0, 1),
    st.booleans(),
    st.booleans(),
)
def test_any_demand_and_view_give_a_limit_within_the_limit(
    flow_rates: list[float], remote: float, drop_ratio: float, first: bool, idle: bool
) -> None:
    assume(not (first and idle))
    total = 0.0 if idle else sum(flow_rates)
    allocator = FlowProportionalShare(FpsParameters())
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
    )
    for _ in range(3):
        allocation = allocator.allocate(demand, view, in_force(), TICK_NS)
        assert allocation.local_limit is not None
        assert 0 <= allocation.local_limit <= LIMIT * (1 + 1e-9)
        assert allocation.value >= 0
        assert allocation.enforcement.fill_rate >= 0
        assert allocation.enforcement.depth is not None
        assert allocation.enforcement.depth >= 18_000


@given(st.lists(st.floats(0.1, 100), min_size=2, max_size=20))
def test_equal_views_make_the_local_limits_sum_to_the_limit(counts: list[float]) -> None:
    """Flow counts need not be whole: `counts` are weights that limiters have settled on."""
    limits = []
    for count in counts:
        allocator = FlowProportionalShare(FpsParameters())
        fair = LIMIT / sum(counts)
        demand = Demand(
            rate=fair * count,
            instant_rate=fair * count,
            flow_rate=fair,
            long_rate=fair * count,
            flows=1,
            drop_ratio=0.01,
            first=False,
            idle=False,
        )
        view = GlobalView(remote=sum(counts) - count, connected=frozenset({"other"}), age_ns=0)
        for _ in range(60):
            allocation = allocator.allocate(demand, view, in_force(), TICK_NS)
        assert allocation.local_limit is not None
        limits.append(allocation.local_limit)
    assert sum(limits) == pytest.approx(LIMIT)
