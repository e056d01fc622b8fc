"""The allocator `fair`, corner by corner."""

from dataclasses import replace

import pytest

from drld.allocators.fair_bucket import BURST_S, DEPTH_ITEMS, IDLE_S
from drld.allocators.fair_wants import HOLD_NS, Wants
from drld.limiter import Limiter
from drld.model import NS_PER_S, GlobalView
from drld.node import membership
from drld.units import BYTES

from ..factories import MBIT, MS, TICK_NS, gossip_spec, measurement, policy
from ..fair_factories import LIMIT, believed, demand, greedy, in_force, make, sampled, settled

GBIT = 1000 * MBIT
QUIET = replace(demand(), idle=True)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"margin": -0.1}, r"margin: must be from 0 to 1 \(got -0.1\)"),
        ({"margin": 1.5}, r"margin: must be from 0 to 1 \(got 1.5\)"),
        ({"headroom": 0.0}, r"headroom: must be above 0 and at most 1 \(got 0.0\)"),
        ({"headroom": 1.1}, r"headroom: must be above 0 and at most 1 \(got 1.1\)"),
        ({"reach": 1.05}, r"reach: must be at least 1 \+ headroom \(got 1.05\)"),
        ({"headroom": 0.6}, r"reach: must be at least 1 \+ headroom \(got 1.5\)"),
    ],
)
def test_errors_name_the_parameter_and_what_it_must_be(
    parameters: dict[str, float], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        make(**parameters)


# What flows want, and what a limiter's weight comes to


def test_greedy_flows_count_one_each() -> None:
    found = settled(greedy(3), remote=7)
    assert found.value == pytest.approx(3)
    assert found.local_limit == pytest.approx(0.3 * LIMIT, rel=1e-5)


def test_a_slow_flow_counts_for_what_it_sends_and_the_headroom() -> None:
    """One of a tenth of the level beside two that want more, and seven elsewhere."""
    found = settled([*greedy(2), sampled(0.01 * LIMIT)], remote=7)
    level = (LIMIT - 0.011 * LIMIT) / 9
    assert found.value == pytest.approx(2 + 0.011 * LIMIT / level)


@pytest.mark.parametrize(
    ("unhit_ns", "weight"), [(HOLD_NS - TICK_NS, 2.0), (HOLD_NS, 1 + 0.22 / 0.78)]
)
def test_a_refused_flow_wants_all_it_can_get_for_half_a_second(
    unhit_ns: int, weight: float
) -> None:
    """The flow sends a fifth of the limit, and the level is half of it."""
    flow = sampled(0.2 * LIMIT, hit=True)
    fair = make()
    for flow.unhit_ns in (0, unhit_ns):
        found = fair.allocate(demand(flow, *greedy(1)), believed(0.0), in_force(), TICK_NS)
    assert found.value == pytest.approx(weight)


def test_a_refused_flow_that_sends_little_of_the_level_does_not() -> None:
    """TCP's swings are no wider; less than a quarter of the level is not for want of tokens."""
    refused = sampled(0.02 * LIMIT, hit=True)
    assert settled([refused], remote=8).value == pytest.approx(0.022 * 8 / 0.978, rel=1e-3)


@pytest.mark.parametrize(("age_ns", "factor"), [(TICK_NS, 2.0), (TICK_NS + 1, 1.1)])
def test_a_flow_of_the_last_interval_wants_twice_what_it_sent(age_ns: int, factor: float) -> None:
    want = factor * 0.01 * LIMIT
    found = settled([sampled(0.01 * LIMIT, age_ns=age_ns)], remote=9)
    assert found.value == pytest.approx(want * 9 / (LIMIT - want))


def test_flows_in_a_pause_want_nothing() -> None:
    paused = sampled(0.01 * LIMIT)
    paused.paused, paused.rate = True, 0.0
    assert settled([*greedy(1), paused], remote=3).value == pytest.approx(1)


def test_a_flow_in_a_pause_leaves_no_rate_of_nothing() -> None:
    """Only beside flows that want something does a limiter claim little for its bucket."""
    paused = sampled(0.01 * LIMIT)
    paused.paused, paused.rate = True, 0.0
    assert Wants(demand(paused), LIMIT, 0.1, TICK_NS).rates == []


def test_flows_outside_the_sample_count_like_those_in_it() -> None:
    """Half of what arrives is outside, so that each sampled flow counts twice."""
    found = settled(greedy(4), remote=8, rest=4 * LIMIT)
    assert found.value == pytest.approx(8)
    assert found.local_limit == pytest.approx(LIMIT / 2, rel=1e-5)


def test_flows_outside_the_sample_count_whole_although_those_in_it_have_ended() -> None:
    paused = sampled(0.01 * LIMIT)
    paused.paused, paused.rate = True, 0.0
    found = settled([sampled(0.01 * LIMIT), *[paused] * 3], remote=9, rest=0.03 * LIMIT)
    assert found.value == pytest.approx(0.044 * 9 / 0.956)


def test_flows_that_have_ended_do_not_multiply_one_that_wants_all_it_can_get() -> None:
    """Two flows like the refused one, and two like the one that carries what the ended ones did."""
    paused = sampled(0.1 * LIMIT)
    paused.paused, paused.rate = True, 0.0
    refused = sampled(0.1 * LIMIT, hit=True)
    found = settled([refused, *[paused] * 9], remote=3, rest=LIMIT)
    assert found.value == pytest.approx(4)


def test_traffic_of_which_nothing_is_sampled_counts_as_one_flow() -> None:
    found = settled([], remote=9, rest=0.02 * LIMIT)
    assert found.value == pytest.approx(0.022 * 9 / 0.978)


@pytest.mark.parametrize("weight", [0.5, 2.0, 3.0])
@pytest.mark.parametrize("flows", [1, 4])
def test_weights_of_limiters_are_kept(weight: float, flows: int) -> None:
    """A flow gets as many times what a flow elsewhere gets, where all want more."""
    heavy, plain = make(), make()
    told = [0.0, 0.0]
    for _ in range(100):
        told = [
            fair.allocate(
                demand(*greedy(flows), forwarded=0),
                believed(remote, own),
                in_force(weight=own_weight),
                TICK_NS,
            ).value
            for fair, own, remote, own_weight in (
                (heavy, told[0], told[1], weight),
                (plain, told[1], told[0], 1.0),
            )
        ]
    assert told[0] / told[1] == pytest.approx(weight, rel=0.03)


def test_a_slow_flow_at_a_heavy_limiter_gets_no_more_than_it_wants() -> None:
    slow = [sampled(0.01 * LIMIT)]
    plain = settled(slow, remote=5)
    heavy = settled(slow, remote=5, limit=in_force(weight=4.0))
    assert plain.value == pytest.approx(heavy.value)


def test_the_weight_is_no_more_than_what_arrived_lately_can_use() -> None:
    """Averages remember flows that have gone; but not in the first quarter of a second."""
    gone = [sampled(0.5 * LIMIT, hit=True)]
    fair = make()
    values = [
        fair.allocate(
            demand(*gone, instant_rate=0.01 * LIMIT, idle=False), believed(9.0), in_force(), TICK_NS
        ).value
        for _ in range(60)
    ]
    assert values[0] == pytest.approx(1)
    packets = 20 * BYTES.item
    assert _worth(values[-1], 9.0) == pytest.approx(0.01 * LIMIT + packets, rel=0.01)


def test_flows_that_meet_a_bottleneck_keep_half_more_than_they_send() -> None:
    """The last quarter of a second shows the pause; averages show it half a second later."""
    slowed = [sampled(0.1 * LIMIT, hit=True) for _ in range(6)]
    fair = make()
    for _ in range(20):
        fair.allocate(demand(*slowed), believed(4.0), in_force(), TICK_NS)
    for _ in range(25):
        wanted = demand(*slowed, instant_rate=0.2 * LIMIT)
        found = fair.allocate(wanted, believed(4.0), in_force(), TICK_NS)
    assert _worth(found.value, 4.0) == pytest.approx(1.5 * 0.2 * LIMIT, rel=0.02)


def _worth(weight: float, remote: float) -> float:
    """The local limit that a weight is worth, bytes/s."""
    return LIMIT * weight / (weight + remote)


# What is enforced


def test_a_limit_of_nothing_passes_nothing() -> None:
    found = make().allocate(demand(*greedy(1)), believed(0.0), in_force(0.0), TICK_NS)
    assert found.value == 0
    assert (found.enforcement.fill_rate, found.enforcement.depth) == (0, 0)


def test_a_limiter_whose_weight_is_news_is_filled_at_its_static_share() -> None:
    fair = make()
    found = fair.allocate(demand(*greedy(30)), believed(10.0, told=0.0), in_force(), TICK_NS)
    assert found.value == pytest.approx(30)
    assert found.local_limit == pytest.approx(LIMIT / 4, rel=1e-5)


def test_a_limit_rises_to_twice_what_all_have_heard_of() -> None:
    fair = make()
    found = fair.allocate(demand(*greedy(90)), believed(10.0, told=10.0), in_force(), TICK_NS)
    assert found.local_limit == pytest.approx(LIMIT * 9 / 10, rel=1e-5)
    fair = make()
    found = fair.allocate(demand(*greedy(90)), believed(10.0, told=5.0), in_force(), TICK_NS)
    assert found.local_limit == pytest.approx(LIMIT * 2 / 3, rel=1e-5)


@pytest.mark.parametrize(
    ("told", "least_remote", "rise"),
    [(5.0, 45.0, 2.0), (5.0, 20.0, 2.0), (5.0, 10.0, 1.2), (5.0, 5.0, 1.0), (0.5, 0.0, 1.0)],
    ids=["no-growth", "swing", "growth", "more-growth", "wake-up"],
)
def test_a_limit_rises_less_while_the_fleet_grows(
    told: float, least_remote: float, rise: float
) -> None:
    view = believed(95.0, told, least_remote=least_remote)
    limit = in_force(static_rate=0.0)
    found = make().allocate(demand(*greedy(90)), view, limit, TICK_NS)
    assert found.local_limit == pytest.approx(rise * LIMIT * told / (told + 95), rel=1e-5)


def test_the_value_of_the_next_update_counts_as_told() -> None:
    """Others may use it before the next tick here: the strict share is of the least."""
    fair = make(margin=0.0)
    for told in (8.0, 8.0):
        found = fair.allocate(demand(*greedy(2)), believed(8.0, told), in_force(), TICK_NS)
    assert found.value == pytest.approx(2)
    assert fair._bucket.account._income == pytest.approx(LIMIT * 2 / 10)


def test_a_limiter_alone_is_one_bucket() -> None:
    view = GlobalView(remote=0.0, connected=frozenset(), age_ns=None)
    found = make().allocate(demand(*greedy(1)), view, in_force(), TICK_NS)
    assert found.local_limit == LIMIT
    assert found.enforcement.depth == pytest.approx(0.06 * LIMIT)


def test_a_limiter_without_traffic_has_its_static_share_and_a_shallow_bucket() -> None:
    found = make().allocate(QUIET, believed(0.0), in_force(), TICK_NS)
    assert found.value == 0
    assert found.local_limit == pytest.approx(LIMIT / 4)
    deep = min(2 * 0.06, IDLE_S) * LIMIT / 4 + 2 * BYTES.item
    assert found.enforcement.depth == pytest.approx(max(deep, 0.03 * LIMIT + BYTES.item), abs=1)


def test_in_a_busy_fleet_a_limiter_without_traffic_has_nothing_but_its_depth() -> None:
    """It wants nothing while its bucket is full."""
    fair = make()
    for _ in range(30):
        found = fair.allocate(QUIET, believed(9.0), in_force(), TICK_NS)
    assert (found.value, found.local_limit) == (0, 0)
    deep = min(2 * 0.06, IDLE_S) * LIMIT / 4 + 2 * BYTES.item
    assert found.enforcement.depth == pytest.approx(deep, abs=1)


def test_a_limiter_that_has_spent_its_depth_asks_for_it_like_a_flow() -> None:
    fair = make()
    fair.allocate(QUIET, believed(9.0), in_force(), TICK_NS)
    fair.allocate(replace(QUIET, forwarded_tokens=30_000), believed(9.0), in_force(), TICK_NS)
    found = fair.allocate(QUIET, believed(9.0), in_force(), TICK_NS)
    assert found.value > 0
    told = 0.0
    values = []
    for _ in range(400):
        found = fair.allocate(QUIET, believed(9.0, told), in_force(), TICK_NS)
        told = found.value
        values.append(told)
    assert values[-1] == 0


def test_a_limiter_that_wakes_up_is_not_held_to_what_arrived_before() -> None:
    fair = make()
    for _ in range(30):
        fair.allocate(QUIET, believed(3.0), in_force(), TICK_NS)
    waking = demand(sampled(0.05 * LIMIT, age_ns=TICK_NS), first=True)
    found = fair.allocate(waking, believed(3.0), in_force(), TICK_NS)
    assert found.value == pytest.approx(0.1 * LIMIT * 3 / (0.9 * LIMIT))


def test_a_trickle_makes_a_bucket_no_deeper() -> None:
    """A fleet that wakes up after keepalives has no more at once than one that was idle."""
    limit = in_force(static_rate=LIMIT / 100, static_burst=0.06 * LIMIT / 100)
    keepalive, flow = (sampled(rate) for rate in (120.0, 0.01 * LIMIT))
    idle, trickle, busy = (
        make().allocate(seen, believed(1.0), limit, TICK_NS).enforcement.depth
        for seen in (QUIET, demand(keepalive), demand(flow))
    )
    assert idle == trickle
    assert busy == DEPTH_ITEMS * BYTES.item


def test_a_limiter_claims_its_next_burst_before_its_account_pays_for_it() -> None:
    """The claim covers a full account: the loan of twice the age of news, and six packets."""
    fair = make()
    limit = in_force(static_rate=LIMIT / 40, static_burst=0.06 * LIMIT / 40)
    fair.allocate(QUIET, believed(9.0), limit, TICK_NS)
    burst = 30_000 * NS_PER_S / TICK_NS
    arriving = replace(QUIET, instant_rate=burst, forwarded_tokens=10_000)
    found = fair.allocate(arriving, believed(9.0), limit, TICK_NS)
    full = 8 * TICK_NS / NS_PER_S * limit.static_rate + DEPTH_ITEMS * BYTES.item
    assert (found.enforcement.depth or 0) < 0.6 * full
    found = fair.allocate(QUIET, believed(9.0), limit, TICK_NS)
    assert _worth(found.value, 9.0) * BURST_S == pytest.approx(full, rel=0.01)


def _depth_after_bursts(bursts: int, idle_ticks: int) -> tuple[int, bool]:
    """Depth, and whether that is final, of one of 40 limiters after bursts of 20,000 bytes."""
    fair, told = make(), 0.0
    limit = in_force(static_rate=LIMIT / 40, static_burst=0.06 * LIMIT / 40)
    burst = 20_000
    arriving = replace(demand(), instant_rate=burst * NS_PER_S / TICK_NS, forwarded_tokens=3_000)
    pause = [QUIET] * (NS_PER_S // TICK_NS)
    for seen in [*(bursts * [arriving, *pause]), *(idle_ticks * [QUIET])]:
        found = fair.allocate(seen, believed(0.0, told), limit, TICK_NS)
        told = found.value
    return found.enforcement.depth or 0, fair.settled


def test_a_limiter_with_bursts_is_deep_enough_for_the_next_one() -> None:
    """The depth reaches as far as its account; eight seconds after the last burst it is idle."""
    idle, settled = _depth_after_bursts(0, 1)
    assert (idle < 10_000, settled) == (True, True)
    bursty, settled = _depth_after_bursts(3, 1)
    assert bursty == pytest.approx(20_000, rel=0.1)
    assert not settled
    assert _depth_after_bursts(3, 8 * NS_PER_S // TICK_NS) == (idle, True)


# Rates and intervals


@pytest.mark.parametrize("interval_ms", [10, 50, 200, 1000])
@pytest.mark.parametrize("limit", [1250.0 / 8, 1250.0, 10.0 * MBIT, 400.0 * GBIT])
def test_rates_from_1_kbit_to_400_gbit_and_intervals_from_10_ms_to_1_s(
    limit: float, interval_ms: int
) -> None:
    """The split is the same, and what is enforced fits the datapath's integers."""
    found = settled(
        greedy(3, limit),
        remote=7,
        limit=in_force(limit, burst=max(0.06 * limit, 1), interval_ns=interval_ms * MS),
        interval_ns=interval_ms * MS,
        ticks=max(100, 20_000 // interval_ms),
        instant_rate=max(limit, 40 * BYTES.item),
    )
    assert found.value == pytest.approx(3, rel=1e-6)
    enforced = found.enforcement
    assert enforced.fill_rate == pytest.approx(0.3 * limit, rel=1e-3, abs=1)
    assert enforced.depth is not None
    assert BYTES.item <= enforced.depth < 1 << 40
    assert enforced.flow_rate >= 64
    if limit < 2000:
        assert enforced.depth <= DEPTH_ITEMS * BYTES.item


def test_after_a_short_tick_spare_bytes_last_for_a_whole_interval() -> None:
    """A limit of 1 s that is ticked early is not ticked again for 1 s."""
    early, on_time = (
        settled(
            greedy(9),
            remote=1,
            limit=in_force(interval_ns=NS_PER_S),
            interval_ns=interval_ns,
            ticks=1,
        )
        for interval_ns in (50 * MS, NS_PER_S)
    )
    assert early.enforcement.fill_rate == on_time.enforcement.fill_rate


# In a limiter


def test_before_the_first_word_a_limiter_is_believed_to_want_nothing() -> None:
    limit = policy("fair")
    gossip = gossip_spec()
    made = Limiter(limit, membership("a", ("a", "b"), gossip), gossip.fabric)
    made.tick(measurement(100_000), TICK_NS)
    made.publish(["b"], TICK_NS)
    news_ns = made.fabric.news_ns + TICK_NS
    for now_ns in range(2 * TICK_NS, TICK_NS + news_ns, TICK_NS):
        tick = made.tick(measurement(100_000), now_ns)
        assert tick.view.told == 0
        made.publish(["b"], now_ns)
    assert made.tick(measurement(100_000), TICK_NS + news_ns).view.told > 0
