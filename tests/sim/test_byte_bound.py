"""The bound on bytes of `fair` (docs/conservative-rule.md, "A bound on bytes")."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drld.allocators.fair import FairParameters

from ..factories import MS, TICK_NS, limit_spec
from ..fleets.events import slow
from ..fleets.limiters import PacketFleet
from .byte_bound import BEGIN_S, BURST, LIMIT, TRAFFIC, Shares, beyond, bound, found_in
from .test_news import hops

ROUNDED = 1 + 1e-6
"""Values are told as float32."""


@pytest.mark.parametrize("fabric", ["mesh", "tree"])
@given(
    size=st.sampled_from([2, 3, 5, 8]),
    traffic=st.sampled_from(sorted(TRAFFIC)),
    seed=st.integers(0, 999),
    margin=st.sampled_from([0.0, 0.2]),
    path=st.sampled_from([0.02, 0.1, 0.2]),
    interval_ms=st.sampled_from([20, 50, 50, 200]),
    reckless=st.booleans(),
)
@settings(slow, max_examples=12)
def test_no_window_exceeds_the_bound(
    fabric: str,
    *,
    size: int,
    traffic: str,
    seed: int,
    margin: float,
    path: float,
    interval_ms: int,
    reckless: bool,
) -> None:
    """Nor if limiters take at once all that they believe to have; and strict shares sum to 1."""
    found = found_in(
        fabric,
        size,
        traffic,
        seed,
        margin=margin,
        path=path,
        interval_ns=interval_ms * MS,
        reckless=reckless,
    )
    assert found.bytes <= 1
    assert found.shares <= ROUNDED


@pytest.mark.parametrize("fabric", ["mesh", "tree"])
@pytest.mark.parametrize("traffic", ["pulses", "together"])
def test_without_the_account_limiters_exceed_the_bound(fabric: str, traffic: str) -> None:
    bounded, unbounded = (
        found_in(fabric, 7, traffic, 1, margin=0.0, reckless=True, account=account)
        for account in (True, False)
    )
    assert bounded.bytes <= 1 < unbounded.bytes


def test_strict_shares_sum_to_more_than_one_where_news_in_a_tree_is_older_than_d() -> None:
    """The smallest case: one flow begins at l0 while another fills the limit at l3, five hops away.

    Each limiter between them ticks just before the news comes. So l0 has a strict share of 1/2 some
    milliseconds before l3 knows of it.
    """
    path = 0.2
    limit = limit_spec(
        "fair", rate=LIMIT, burst=BURST, parameters=FairParameters(margin=0.0), interval_ns=TICK_NS
    )
    fleet = PacketFleet(limit, 7, seed=55, fabric="tree", delay_ns=round(path * TICK_NS))
    assert fleet.fabric("l0").news_ns < (hops(fleet.names) * (path + 1) - 1) * TICK_NS
    shares = Shares(fleet, margin=0.0)
    fleet.constant("l3", 1, 2 * LIMIT)
    fleet.run_until(BEGIN_S)
    shares.most = 0.0
    fleet.constant("l0", 2, 2 * LIMIT)
    fleet.run_until(BEGIN_S + 1)
    assert shares.most == pytest.approx(1.5, abs=0.01)
    assert beyond(fleet, margin=0.0) <= bound(fleet, margin=0.0)
    shares.most = 0.0
    fleet.run_until(BEGIN_S + 2)
    assert shares.most <= ROUNDED
