"""`adaptive`: parts of rate and depth that follow rates and backlogs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drld.allocators.adaptive import GROWTH, PROFILE, Adaptive, AdaptiveParameters
from drld.allocators.base import Allocation, InForce
from drld.limiter import Limiter
from drld.model import NS_PER_S, GlobalView, Quantity
from drld.node import membership

from ..factories import TICK_NS, demand, gossip_spec, measurement, policy, view
from ..wire import mesh

ITEM = 1_000_000
RATE, BURST = 1_100 * ITEM, 26 * ITEM
LIMIT = InForce(
    RATE, BURST, RATE / 4, BURST / 4,
    item=ITEM, whole_rate=RATE, whole_burst=BURST, least_burst=BURST / 4,
)  # fmt: skip
SECOND_NS = NS_PER_S
WINDOW_NS = 10 * SECOND_NS


def seen(
    told: float = 0, remote: float = 0, second_told: float = 0, second_remote: float = 0
) -> GlobalView:
    """A view of the fleet, as parts of the rate and of the depth."""
    second = replace(view(second_remote * BURST), told=second_told * BURST)
    return replace(view(remote * RATE), told=told * RATE, second=second)


def allocated(
    found: GlobalView,
    rate: float = 0,
    backlog: float = 0,
    alive: float = 1,
    *,
    saturated: bool = False,
) -> Allocation:
    """After a second, or a saturated window, with that rate and backlog, as parts of the whole."""
    allocator = Adaptive(AdaptiveParameters())
    limit = replace(LIMIT, rate=alive * RATE, burst=alive * BURST)
    measured = demand(rate * RATE)
    measured = replace(measured, backlog=round(backlog * BURST), saturated=saturated)
    interval_ns = WINDOW_NS if saturated else SECOND_NS
    return allocator.allocate(measured, found, limit, interval_ns)


def parts(made: Allocation) -> tuple[float, float]:
    assert made.enforcement.depth is not None
    return made.enforcement.fill_rate / RATE, made.enforcement.depth / BURST


def test_rate_and_depth_are_divided_by_rates_and_backlogs() -> None:
    """r * rate / sum and b * backlog / sum; a claim is what a value has above the floor."""
    floor = 0.05 / 4
    rate, depth = parts(
        allocated(seen(0.6 - floor, 0.4 - 3 * floor, 4.5 - floor, 0.5 - 3 * floor), 0.6, 4.5)
    )
    assert rate == pytest.approx(0.6)
    kept = ITEM / (BURST / 4)
    assert depth == pytest.approx(kept / 4 + (1 - kept) * 0.9)


def test_without_messages_each_has_its_static_share() -> None:
    assert parts(allocated(seen())) == pytest.approx((0.25, 0.25))
    made = allocated(seen())
    assert (made.value, made.second) == (0, 0)


def test_a_limiter_without_messages_keeps_its_floor_and_a_message() -> None:
    rate, depth = parts(allocated(seen(remote=0.95, second_remote=20)))
    assert rate == pytest.approx(0.05 / 4)
    assert ITEM / BURST <= depth < 1.1 * ITEM / BURST


def test_unclaimed_rate_is_divided_like_the_static_shares() -> None:
    """Each has 1.1 times its rate, and its share of the rest."""
    rate, _ = parts(allocated(seen(told=0.2, remote=0.1), 0.2 + 0.05 / 4))
    assert rate == pytest.approx(PROFILE * 0.2 + (1 - PROFILE * 0.3) / 4)


def test_a_claim_counts_when_it_was_told_for_so_long() -> None:
    """A falling claim counts at once for the others, and late for this limiter."""
    made = allocated(seen(told=0, remote=0.7), rate=0.6)
    assert made.value > 0.4 * RATE
    assert parts(made)[0] < 0.1


def test_a_claim_that_falls_counts_at_once() -> None:
    made = allocated(seen(told=0.6, remote=0.35), rate=0.1)
    assert made.value == pytest.approx((0.1 - 0.05 / 4) * RATE)
    assert parts(made)[0] == pytest.approx((0.05 / 4 + 0.1 - 0.05 / 4) / 0.4875, rel=0.2)


def test_a_claim_that_is_not_needed_grows_slowly() -> None:
    made = allocated(seen(told=0.1, remote=0.2), rate=0.2)
    assert made.value == pytest.approx((0.1 + GROWTH / 4) * RATE)


def test_a_saturated_limiter_claims_its_static_share_whatever_arrives() -> None:
    """Its publishers may be held back, so its arrivals show only the part that it lets out."""
    made = allocated(seen(0.05, 0.8, 0, 20), 0.06, 100, saturated=True)
    assert made.value == pytest.approx((1 / PROFILE - 0.05) / 4 * RATE)
    assert made.second == pytest.approx((1 / PROFILE - 0.05) / 4 * BURST)


def test_a_saturated_limiter_claims_more_only_where_others_leave_it() -> None:
    left = 1 / PROFILE - 0.3 - 0.05
    made = allocated(seen(told=left, remote=0.3), 5, saturated=True)
    assert made.value == pytest.approx(left * RATE)
    held_back = allocated(seen(told=0.3, remote=0.3), 0.3, saturated=True)
    assert held_back.value == pytest.approx((0.3 + GROWTH / 4) * RATE)


def test_a_limiter_claims_no_more_than_the_limit() -> None:
    assert allocated(seen(told=2), 5).value == pytest.approx((1 - 0.05 / 4) * RATE)


def test_a_shorter_wait_is_not_saturation() -> None:
    allocator, measured = Adaptive(AdaptiveParameters()), replace(demand(0.1), saturated=True)
    claims = [
        allocator.allocate(measured, seen(remote=0.8), LIMIT, WINDOW_NS // 2).value
        for measured in (measured, replace(measured, saturated=False), measured, measured)
    ]
    assert [claim > 0 for claim in claims] == [False, False, False, True]


def test_a_dead_peer_takes_its_static_share_out_of_the_limit() -> None:
    assert parts(allocated(seen(), alive=0.75)) == pytest.approx((0.25, 0.25))
    busy = seen(told=0.95, second_told=10)
    rate, depth = parts(allocated(busy, 0.95 + 0.0125, 10, alive=0.75))
    assert rate == pytest.approx(0.75 * 0.95 + 0.05 / 4)
    assert depth < 0.75


def test_without_a_share_in_force_there_is_nothing() -> None:
    nothing = InForce(0, 0, 0, 0, item=ITEM)
    made = Adaptive(AdaptiveParameters()).allocate(demand(5.0), seen(), nothing, SECOND_NS)
    assert (made.enforcement.fill_rate, made.enforcement.depth) == (0, 0)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"window": 0.5}, r"window: must be from step to 600 \(got 0.5\)"),
        ({"step": 0.0}, r"step: must be from 0.1 to 60 \(got 0.0\)"),
        ({"floor": 0.0}, r"floor: must be from 0.001 to 1 \(got 0.0\)"),
    ],
)
def test_parameters_have_bounds(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        AdaptiveParameters(**wrong)


def limiter() -> Limiter:
    names = ("a", "b")
    return Limiter(policy("adaptive"), membership("a", names, gossip_spec("mesh")), "mesh")


def test_a_limit_tells_two_quantities_in_one_sequence() -> None:
    made = limiter()
    made.tick(replace(measurement(75_000, interval_ns=SECOND_NS), backlog=50_000), SECOND_NS)
    told = [update for _, update in made.publish(["b"], SECOND_NS)]
    assert [update.quantity for update in told] == [Quantity.RATE, Quantity.BACKLOG]
    assert [update.sequence for update in told] == [0, 1]
    assert all(update.value > 0 for update in told)


def test_a_limit_knows_both_quantities_of_a_peer() -> None:
    made = limiter()
    for sequence in range(0, 20, 2):
        now_ns = (sequence + 1) * TICK_NS
        made.receive("b", mesh(1, sequence, 5.0, whole=True), now_ns)
        made.receive("b", mesh(1, sequence + 1, 7.0, Quantity.BACKLOG, whole=True), now_ns)
    seen_view = made.tick(measurement(0, flows={}), 20 * TICK_NS).view
    assert seen_view.second is not None
    assert (seen_view.remote, seen_view.second.remote) == (5.0, 7.0)
    assert [fabric.links["b"].received for fabric in made.fabrics] == [10, 10]
    assert [fabric.links["b"].lost for fabric in made.fabrics] == [0, 0]


def test_a_weight_is_rejected() -> None:
    made = limiter()
    made.receive("b", mesh(1, 0, 5.0, Quantity.WEIGHT), TICK_NS)
    assert [fabric.links["b"].rejected for fabric in made.fabrics if "b" in fabric.links] == [1]
