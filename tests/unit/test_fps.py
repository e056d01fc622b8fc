"""`fps` and `fps-random-drop`, corner by corner."""

from dataclasses import replace

import pytest

from drld.allocators.base import InForce
from drld.capture.kernel_layout import record
from drld.gossip.wire.update_codec import MAX_VALUE
from drld.model import NS_PER_S, Demand, GlobalView
from drld.units import BYTES

from ..factories import MBIT, TICK_NS, demand, view
from .allocation import IDLE, LIMIT, allocate, local_limit, make


def saturated(flows: float = 3, rate: float = 3 * MBIT) -> Demand:
    """`flows` equal flows that this limiter limits."""
    return demand(rate, flow_rate=rate / flows, drop_ratio=0.05)


def test_fps_weight_is_the_number_of_flows_and_the_limit_proportional() -> None:
    allocation = allocate(make("fps"), saturated(3), view(7), ticks=40)
    assert allocation.value == pytest.approx(3)
    assert allocation.local_limit == pytest.approx(3 * MBIT)
    assert allocation.enforcement.fill_rate == 3 * MBIT
    assert allocation.enforcement.depth == round(75_000 * 0.5**0.5)  # of a static share


def test_fps_single_limiter_has_the_whole_limit() -> None:
    alone = GlobalView(remote=0, connected=frozenset(), age_ns=None)
    allocation = allocate(make("fps"), saturated(3, 10 * MBIT), alone)
    assert allocation.local_limit == 10 * MBIT
    assert allocation.enforcement.depth == 75_000


def test_fps_no_remote_weight_gives_the_whole_limit_and_counts_flows() -> None:
    allocation = allocate(make("fps"), demand(1 * MBIT, flow_rate=0.5 * MBIT), view(0))
    assert allocation.local_limit == 10 * MBIT
    assert allocation.value == pytest.approx(2)


def test_fps_unsaturated_limit_is_the_demand_with_headroom() -> None:
    allocation = allocate(make("fps"), demand(2 * MBIT, flow_rate=0.2 * MBIT), view(3), ticks=6)
    assert allocation.local_limit == pytest.approx(1.1 * 2 * MBIT)
    assert allocation.value == pytest.approx(2.2 * 3 / (10 - 2.2))


def test_fps_demand_of_the_whole_limit_or_more_is_saturated() -> None:
    """Line 9 would divide by zero, or go negative."""
    for rate in (10 * MBIT / 1.1, 10 * MBIT, 50 * MBIT):
        allocator = make("fps")
        allocation = allocate(allocator, demand(rate, flow_rate=rate / 4), view(4), ticks=40)
        assert allocation.value == pytest.approx(4)
        assert allocation.local_limit == pytest.approx(5 * MBIT)


def test_fps_a_static_share_of_zero_is_a_limit_of_zero() -> None:
    """Alone, a limiter without a share has nothing in force."""
    nothing = InForce(rate=0.0, burst=0.0, static_rate=0.0, static_burst=0.0)
    alone = GlobalView(remote=0, connected=frozenset(), age_ns=None)
    for name in ("fps", "fps-random-drop"):
        for local in (IDLE, saturated(3), demand(1 * MBIT, flow_rate=1 * MBIT, first=True)):
            allocation = make(name).allocate(local, alone, nothing, TICK_NS)
            assert allocation.local_limit == 0
            assert allocation.enforcement.fill_rate == 0


def test_fps_unsaturated_flows_are_worth_no_more_than_saturated_ones() -> None:
    """Line 9 alone: 2.2 * 30 / 7.8 flows for the demand of one."""
    allocation = allocate(make("fps"), demand(2 * MBIT, flow_rate=2 * MBIT), view(30), ticks=6)
    assert allocation.value == pytest.approx(1)


def test_fps_flows_that_start_count_whole_for_a_while_whatever_they_send() -> None:
    """Later they count for their worth, unless something was dropped."""
    allocator = make("fps", start_s=0.25)
    allocate(allocator, IDLE, view(9))
    first = demand(0.4 * MBIT, flow_rate=0.2 * MBIT, drop_ratio=0.5, first=True)
    assert allocate(allocator, first, view(8)).value == pytest.approx(2)
    small = demand(0.4 * MBIT, flow_rate=0.2 * MBIT)
    assert allocate(allocator, small, view(8), ticks=4).value == pytest.approx(2)
    after = allocate(allocator, small, view(8))
    assert after.local_limit == pytest.approx(1.1 * 0.4 * MBIT)
    # The next start is after the next idle time.
    assert allocate(allocator, small, view(8), ticks=40).value == after.value
    allocate(allocator, IDLE, view(8))
    assert allocate(allocator, small, view(8)).value == pytest.approx(2)


def test_fps_random_drop_of_flows_that_start_goes_by_what_they_send_now() -> None:
    allocator = make("fps-random-drop", start_s=0.1)
    allocate(allocator, IDLE, view(1))
    doubled = replace(demand(6 * MBIT, flow_rate=6 * MBIT), instant_rate=20 * MBIT)
    for expected in (15 / 20, 15 / 20, 3.8 / 8.8):
        enforcement = allocate(allocator, doubled, view(1)).enforcement
        assert enforcement.drop_probability == pytest.approx(expected)


def test_fps_silent_flows_keep_their_weight_to_themselves() -> None:
    """Others have their share while they are silent; it is back when they are."""
    allocator = make("fps")
    allocate(allocator, saturated(3), view(7), ticks=40)
    silent = replace(demand(1 * MBIT), flow_rate=None, long_rate=0.0)
    allocation = allocate(allocator, silent, view(7))
    assert allocation.value == 0.1
    assert local_limit(allocation) == pytest.approx(10 * MBIT * 0.1 / 7.1)
    assert allocate(allocator, saturated(3), view(7)).value == pytest.approx(3)


def test_fps_new_flow_grows_to_its_fair_share() -> None:
    allocator = make("fps")
    allocate(allocator, IDLE, view(9))
    allocate(allocator, demand(0.05 * MBIT, flow_rate=0.05 * MBIT, first=True), view(9))
    limits = [local_limit(allocate(allocator, saturated(1, 0.2 * MBIT), view(9)))]
    for _ in range(19):
        limits.append(local_limit(allocate(allocator, saturated(1, limits[-1]), view(9))))
    assert limits == sorted(limits)
    assert limits[-1] == pytest.approx(1 * MBIT)


def test_fps_idle_limiter_lets_a_new_flow_begin() -> None:
    """A limit of zero still has the SYN and the initial window's worth of tokens, once."""
    allocator = make("fps")
    records = [allocate(allocator, IDLE, view(10)).enforcement for _ in range(3)]
    assert {record.fill_rate for record in records} == {0}
    assert {record.depth for record in records} == {round(75_000 * 0.5**0.5)}
    assert {record.credit for record in records} == {12 * BYTES.item}
    assert len({record.credit_id for record in records}) == 1
    busy = allocate(allocator, saturated(1), view(10)).enforcement
    assert busy.credit_id == records[0].credit_id
    again = allocate(allocator, IDLE, view(10)).enforcement
    assert again.credit_id != records[0].credit_id


@pytest.mark.parametrize("name", ["fps", "fps-paper"])
def test_fps_idle_fleet_has_static_shares(name: str) -> None:
    allocation = allocate(make(name), IDLE, view(0))
    assert (allocation.value, allocation.local_limit) == (0, 5 * MBIT)


def test_fps_empty_sample_carries_the_last_weight() -> None:
    allocator = make("fps")
    allocate(allocator, saturated(3), view(7), ticks=40)
    empty = demand(3 * MBIT, flow_rate=None, drop_ratio=0.05)
    assert allocate(allocator, empty, view(7)).value == pytest.approx(3)


def test_fps_a_lull_between_losses_keeps_the_weight() -> None:
    """TCP sends below its limit after a loss; that alone is no change of regime."""
    allocator = make("fps")
    allocate(allocator, saturated(3), view(7), ticks=40)
    lull = demand(2.4 * MBIT, flow_rate=0.8 * MBIT)
    assert allocate(allocator, lull, view(7), ticks=19).value == pytest.approx(3)
    assert allocate(allocator, lull, view(7)).value < 3


def test_fps_what_cannot_be_used_is_not_claimed_and_comes_back_at_once() -> None:
    """Requests stop coming; the filters, and so the weight, remember them."""
    allocator = make("fps")
    allocate(allocator, saturated(3), view(7), ticks=40)
    less = replace(saturated(3), instant_rate=0.5 * MBIT)
    first = allocate(allocator, less, view(7))
    fourth = allocate(allocator, less, view(7), ticks=3)
    assert first.value == pytest.approx(3)
    # Three quarters of 2.5 Mbit/s are forgotten after 0.2 s.
    assert local_limit(fourth) == pytest.approx(1.5 * (0.5 + 2.5 * 1e-4**0.2) * MBIT)
    assert allocate(allocator, saturated(3), view(7), ticks=2).value == pytest.approx(3)


@pytest.mark.parametrize(
    ("limiters", "weight", "depth"),
    [(1, 1, 75_000), (2, 64, 60_000), (4, 1, 37_500), (25, 1, 18_000)],
    ids=["alone", "64 of 100", "its static share of 4", "an initial window"],
)
def test_fps_depth_goes_with_the_root_of_the_share(limiters: int, weight: int, depth: int) -> None:
    limit = InForce(10 * MBIT, 75_000, 10 * MBIT / limiters, 75_000 / limiters)
    remote = view(100 - weight if limiters > 1 else 0)
    flows = saturated(weight, 10 * MBIT * weight / 100)
    allocation = make("fps").allocate(flows, remote, limit, TICK_NS)
    assert allocation.enforcement.depth == depth


def test_fps_one_stray_drop_does_not_claim_the_share_of_all_flows() -> None:
    """Regimes oscillate; seven flows bottlenecked at 2 Mbit/s must not jump to 7 Mbit/s."""
    allocator = make("fps")
    bottlenecked = demand(2 * MBIT, flow_rate=2 * MBIT / 7)
    before = local_limit(allocate(allocator, bottlenecked, view(3), ticks=40))
    stray = demand(2 * MBIT, flow_rate=2 * MBIT / 7, drop_ratio=0.01)
    after = local_limit(allocate(allocator, stray, view(3)))
    assert before < after < 1.3 * before


def test_fps_random_drop_drops_the_local_excess() -> None:
    allocator = make("fps-random-drop")
    busy = demand(4 * MBIT, flow_rate=4 / 3 * MBIT, drop_ratio=0.25)
    allocation = allocate(allocator, busy, view(7), ticks=40)
    assert allocation.local_limit == pytest.approx(3 * MBIT)
    assert allocation.enforcement.drop_probability == pytest.approx(0.25)


def test_fps_random_drop_counts_part_of_the_last_interval_whole() -> None:
    allocator = make("fps-random-drop")
    busy = demand(4 * MBIT, flow_rate=4 / 3 * MBIT, drop_ratio=0.25)
    rising = replace(busy, instant_rate=9 * MBIT)
    allocate(allocator, busy, view(7), ticks=40)
    enforcement = allocate(allocator, rising, view(7)).enforcement
    assert enforcement.drop_probability == pytest.approx(2 / 5)


@pytest.mark.parametrize("local", [IDLE, saturated(3), saturated(3, 4 * MBIT)])
def test_fps_random_drop_is_guarded_by_the_bucket_of_fps(local: Demand) -> None:
    """The guard is filled a tenth faster; depth, and credit when flows begin, are the same."""
    guard, plain = (
        allocate(make(name), local, view(7), ticks=40).enforcement
        for name in ("fps-random-drop", "fps")
    )
    assert guard.fill_rate == pytest.approx(1.1 * plain.fill_rate, abs=1)
    assert replace(guard, drop_probability=0.0, fill_rate=0) == replace(plain, fill_rate=0)


@pytest.mark.parametrize(
    "parameters",
    [
        {"hold_s": 3600.0},
        {"start_s": 3600.0, "growth": 1e6},
        {"growth": 1e6, "hold_s": 0.0},
        {"min_weight": 1000.0},
        {"min_weight": 5e-324},
        {"depth_packets": 1_000_000},
        {"saturation": 1e-9, "headroom": 1e300, "reach": 1e301},
    ],
)
@pytest.mark.parametrize("remote", [0.0, 1e-38, 7.0, 2.0**63])
@pytest.mark.parametrize("interval_ns", [TICK_NS, 3600 * NS_PER_S])
def test_fps_survives_extreme_parameters_and_a_stall(
    parameters: dict[str, float], remote: float, interval_ns: int
) -> None:
    """The record fits the datapath's integers, and the value fits an update."""
    allocator = make("fps", **parameters)
    busy = demand(20 * MBIT, flow_rate=1 * MBIT, drop_ratio=0.5)
    for local in (IDLE, demand(3 * MBIT, flow_rate=1 * MBIT), busy, busy):
        allocation = allocator.allocate(local, view(remote), LIMIT, interval_ns)
        assert 0 <= allocation.value <= MAX_VALUE
        assert 0 <= (allocation.enforcement.depth or 0) <= BYTES.max_burst
        record(allocation.enforcement)
