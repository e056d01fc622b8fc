"""Each allocator against the paper's text, corner by corner."""

from dataclasses import replace
from typing import Any

import pytest

from drld.allocators import ALLOCATORS
from drld.allocators.base import Allocation, Allocator, InForce
from drld.capture.kernel_layout import record
from drld.gossip.wire.update_codec import MAX_VALUE
from drld.model import NS_PER_S, Demand, GlobalView, Quantity
from drld.units import BYTES

from ..factories import MBIT, TICK_NS, demand, view

LIMIT = InForce(rate=10 * MBIT, burst=75_000, static_rate=5 * MBIT, static_burst=37_500)
IDLE = demand(0, idle=True)


def make(name: str, **parameters: Any) -> Allocator:
    allocator = ALLOCATORS[name]
    return allocator(allocator.Parameters(**parameters))


def allocate(allocator: Allocator, local: Demand, remote: GlobalView, ticks: int = 1) -> Allocation:
    for _ in range(ticks):
        allocation = allocator.allocate(local, remote, LIMIT, TICK_NS)
    return allocation


def local_limit(allocation: Allocation) -> float:
    assert allocation.local_limit is not None
    return allocation.local_limit


@pytest.mark.parametrize(
    ("name", "local", "remote", "fill_rate", "depth"),
    [
        pytest.param("ctb", 20, 99, 10, 75_000, id="ctb is the limit itself"),
        pytest.param("static", 20, 0, 5, 37_500, id="static is its share of rate and depth"),
        pytest.param("static", 20, 99, 5, 37_500, id="static is so whatever is heard"),
        pytest.param("gtb", 4, 3, 7, 75_000, id="gtb drains for the others"),
        pytest.param("gtb", 4, 12, -2, 75_000, id="the fill rate of gtb turns negative"),
    ],
)
def test_the_bucket_of_allocators_without_memory(
    name: str, local: int, remote: int, fill_rate: int, depth: int
) -> None:
    """Rates in Mbit/s."""
    allocation = allocate(make(name), demand(local * MBIT), view(remote * MBIT))
    assert allocation.value == local * MBIT
    assert allocation.local_limit == max(fill_rate, 0) * MBIT
    assert allocation.enforcement.fill_rate == fill_rate * MBIT
    assert allocation.enforcement.depth == depth


def test_static_is_its_share_before_any_peer_is_heard() -> None:
    alone = GlobalView(0, frozenset(), None)
    enforcement = allocate(make("static"), demand(20 * MBIT), alone).enforcement
    assert (enforcement.fill_rate, enforcement.depth) == (5 * MBIT, 37_500)


def test_the_smallest_share_of_a_burst_still_passes_packets() -> None:
    """A packet passes a full bucket, however shallow, but none passes one of no depth."""
    limit = replace(LIMIT, static_rate=125, static_burst=0.4)
    enforcement = make("static").allocate(IDLE, view(0), limit, TICK_NS).enforcement
    assert enforcement.depth == 1
    none = replace(LIMIT, static_rate=0, static_burst=0)
    assert make("static").allocate(IDLE, view(0), none, TICK_NS).enforcement.depth == 0


def test_gtb_drains_no_faster_than_a_datapath_can() -> None:
    allocation = allocate(make("gtb"), demand(4 * MBIT), view(2.0**90))
    assert allocation.enforcement.fill_rate == -(2**53)
    assert record(allocation.enforcement)


def papers_grd() -> Allocator:
    return make("grd", lead=0.0, guard=False)


def test_grd_drops_the_global_excess() -> None:
    allocation = allocate(papers_grd(), demand(4 * MBIT), view(8.5 * MBIT))
    assert allocation.enforcement.drop_probability == pytest.approx(2.5 / 12.5)
    assert allocation.enforcement.depth is None
    assert allocation.value == 4 * MBIT


@pytest.mark.parametrize("remote", [0.0, 6 * MBIT])
def test_grd_drops_nothing_up_to_the_limit(remote: float) -> None:
    assert allocate(make("grd"), demand(4 * MBIT), view(remote)).enforcement.drop_probability == 0


def test_grd_with_a_lead_counts_part_of_the_last_interval_whole() -> None:
    rising = replace(demand(4 * MBIT), instant_rate=9 * MBIT)
    allocation = allocate(make("grd"), rising, view(7 * MBIT))
    assert allocation.value == pytest.approx(5 * MBIT)
    assert allocation.enforcement.drop_probability == pytest.approx(2 / 12)
    assert allocate(papers_grd(), rising, view(7 * MBIT)).value == 4 * MBIT


@pytest.mark.parametrize(
    ("local", "remote", "part"),
    [(12, 4, 0.75), (6, 2, 0.75), (1, 3, 0.5), (0, 16, 0.5), (0, 0, 0.5), (20, 0, 1.0)],
)
def test_grd_is_guarded_by_its_part_of_the_demand_or_its_share(
    local: float, remote: float, part: float
) -> None:
    """Half of the limit is its static share."""
    guarded = make("grd")
    enforcement = allocate(guarded, demand(local * MBIT), view(remote * MBIT)).enforcement
    plain = allocate(papers_grd(), demand(local * MBIT), view(remote * MBIT)).enforcement
    assert enforcement.drop_probability == plain.drop_probability
    assert enforcement.fill_rate == pytest.approx(1.05 * part * 10 * MBIT)
    assert enforcement.depth == pytest.approx(75_000 * part**0.5, abs=1)


def test_the_guard_of_grd_lets_a_flow_begin_where_there_is_no_share() -> None:
    guarded = make("grd")
    for rate in (0.0, 10 * MBIT):
        limit = replace(LIMIT, rate=rate, static_rate=0.0)
        allocation = guarded.allocate(IDLE, view(20 * MBIT), limit, TICK_NS)
        assert allocation.enforcement.fill_rate == 0
        assert allocation.enforcement.depth == 12 * BYTES.item


def test_every_allocator_shares_rates_or_weights() -> None:
    rates = {name for name, it in ALLOCATORS.items() if it.quantity is Quantity.RATE}
    assert rates == {"ctb", "static", "gtb", "grd", "adaptive"}
    weights = {name for name, it in ALLOCATORS.items() if it.quantity is Quantity.WEIGHT}
    assert weights == {"fair", "fps", "fps-random-drop", "fps-paper"}


# FPS


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
    """Which is filled a tenth faster; depth, and credit when flows begin, are the same."""
    guard, plain = (
        allocate(make(name), local, view(7), ticks=40).enforcement
        for name in ("fps-random-drop", "fps")
    )
    assert guard.fill_rate == pytest.approx(1.1 * plain.fill_rate, abs=1)
    assert replace(guard, drop_probability=0.0, fill_rate=0) == replace(plain, fill_rate=0)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("grd", "lead", -0.1),
        ("grd", "lead", 1.1),
        ("fps", "headroom", 0.01),
        ("fps", "saturation", 0.0),
        ("fps", "saturation", 1.5),
        ("fps", "hold_s", -1.0),
        ("fps", "growth", 1.0),
        ("fps", "start_s", -0.1),
        ("fps", "min_weight", 0.0),
        ("fps", "depth_packets", 0),
        ("fps", "reach", 1.09),
        ("fps", "hold_s", 1e300),
        ("fps", "growth", 1e38),
        ("fps", "start_s", 1e300),
        ("fps", "min_weight", 1e300),
        ("fps", "depth_packets", 10_000_000),
    ],
)
def test_bad_parameters_are_refused_by_name(name: str, field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{field}"):
        make(name, **{field: value})


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


# The paper's FPS


def papers_fps(local: Demand, remote: GlobalView) -> Allocator:
    """One that has had a first interval with this demand: its local limit is that demand."""
    allocator = make("fps-paper")
    allocate(allocator, IDLE, remote)
    allocate(allocator, replace(local, first=True), remote)
    return allocator


def test_the_papers_weight_is_the_local_limit_over_the_fastest_flow() -> None:
    """Line 6, and not the demand, nor the mean of the flows, nor a drop as evidence."""
    allocator = papers_fps(demand(3 * MBIT, flow_rate=1 * MBIT), view(7))
    local = replace(demand(4 * MBIT, flow_rate=1 * MBIT), fastest_rate=1.5 * MBIT)
    # The average keeps 0.1 a second, of a start that counted whole.
    kept = 0.1 ** (TICK_NS / 1e9)
    weight = (kept * 3 + 3 / 1.5) / (kept + 1)
    allocation = allocate(allocator, local, view(7))
    assert allocation.value == pytest.approx(weight)
    assert allocation.local_limit == pytest.approx(10 * MBIT * weight / (weight + 7))


@pytest.mark.parametrize("drop_ratio", [0.0, 0.5])
def test_the_papers_limit_is_the_demand_below_it_whatever_is_dropped(drop_ratio: float) -> None:
    """Line 9."""
    allocator = papers_fps(demand(3 * MBIT, flow_rate=1 * MBIT), view(7))
    less = demand(2 * MBIT, flow_rate=0.5 * MBIT, drop_ratio=drop_ratio)
    assert local_limit(allocate(allocator, less, view(7), ticks=200)) == pytest.approx(2 * MBIT)


def test_the_papers_first_interval_is_given_its_instantaneous_rate() -> None:
    """Else the weight of an idle limiter, and with it its limit, would stay zero for ever."""
    allocator = make("fps-paper")
    assert local_limit(allocate(allocator, IDLE, view(7))) == 0
    first = demand(1 * MBIT, flow_rate=1 * MBIT, first=True)
    assert local_limit(allocate(allocator, first, view(7))) == pytest.approx(1 * MBIT)


@pytest.mark.parametrize(("rate", "remote"), [(12 * MBIT, 7.0), (4 * MBIT, 0.0)])
def test_the_paper_counts_flows_where_line_9_has_no_answer(rate: float, remote: float) -> None:
    allocator = make("fps-paper")
    allocate(allocator, IDLE, view(remote))
    local = demand(rate, flow_rate=2 * MBIT, first=True)
    assert allocate(allocator, local, view(remote)).value == pytest.approx(rate / MBIT / 2)


def test_the_papers_weight_stays_while_no_flow_is_sampled() -> None:
    allocator = papers_fps(demand(3 * MBIT, flow_rate=1 * MBIT), view(7))
    assert allocate(allocator, demand(4 * MBIT), view(7)).value == pytest.approx(3)


def test_the_papers_bucket_is_whole_and_lets_a_flow_begin() -> None:
    allocator = make("fps-paper")
    records = [allocate(allocator, IDLE, view(7)).enforcement for _ in range(3)]
    assert {(one.fill_rate, one.depth, one.credit) for one in records} == {(0, 75_000, 18_000)}
    assert len({one.credit_id for one in records}) == 1
    busy = allocate(allocator, demand(3 * MBIT, flow_rate=1 * MBIT, first=True), view(7))
    assert busy.enforcement.depth == 75_000
    assert busy.enforcement.credit_id == records[0].credit_id
    assert allocate(allocator, IDLE, view(7)).enforcement.credit_id != records[0].credit_id


def test_the_papers_flows_that_ignore_drops_talk_their_own_weight_down() -> None:
    """Line 6 takes a flow above its share for a smaller one, again and again, down to nothing."""
    allocator = papers_fps(demand(4 * MBIT, flow_rate=4 * MBIT), view(7))
    limits = [
        local_limit(allocate(allocator, demand(4 * MBIT, flow_rate=4 * MBIT), view(7), ticks=20))
        for _ in range(5)
    ]
    assert limits == sorted(limits, reverse=True)
    assert limits[-1] < 0.1 * MBIT
