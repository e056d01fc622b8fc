"""Fair dropping: the flow buckets of a limit, alone and in a policer."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drld.model import NS_PER_S, Enforcement
from drld.police.flow_bucket import MAX_TOKENS, FlowBuckets
from drld.police.policer import DROP, FORWARD, MARK, Excess, Policer, police
from drld.policy import Mode

from ..factories import MS, flow, policy

RNG = Random(1)
RATE = 125_000
START_NS = 10**12


def policer(
    depth: int = 100_000,
    reserve: int = 50_000,
    excess: Excess = Excess.DROP,
    mode: Mode = Mode.ENFORCE,
) -> Policer:
    enforcement = Enforcement(
        fill_rate=0, depth=depth, flow_rate=RATE, flow_depth=15_000, reserve=reserve
    )
    return Policer(policy(mode=mode, excess=excess), enforcement, 0)


def test_a_packet_leaves_the_part_of_the_reserve_that_its_flow_has_used() -> None:
    limit = policer(depth=15_000, reserve=15_000)
    # The fifth packet leaves 7,500 bytes, and its flow has used half of its bucket.
    assert [limit.police(flow(0), 1500, 0, RNG) for _ in range(6)] == [FORWARD] * 5 + [DROP]
    assert limit.bucket.tokens == 7500


@pytest.mark.parametrize("late_ns", [0, 1])
def test_the_tokens_that_a_packet_leaves_are_exact_to_the_nanosecond(late_ns: int) -> None:
    limit = policer(depth=15_000, reserve=15_000)
    for _ in range(5):
        assert limit.police(flow(0), 1500, 0, RNG)
    # 7,500 tokens: the packet may leave 6,000, so that its flow may owe 48 ms. It owes 72 ms at 0.
    assert limit.police(flow(0), 1500, 24 * MS - 1 + late_ns, RNG) == (FORWARD if late_ns else DROP)


def test_a_flow_that_owes_less_finds_tokens_where_another_finds_none() -> None:
    limit = policer(depth=15_000, reserve=15_000)
    assert [limit.police(flow(0), 1500, 0, RNG) for _ in range(6)] == [FORWARD] * 5 + [DROP]
    assert [limit.police(flow(1), 1500, 0, RNG) for _ in range(3)] == [FORWARD] * 2 + [DROP]


def test_a_packet_that_meets_a_full_bucket_leaves_nothing() -> None:
    limit = policer(depth=6000, reserve=100_000)
    assert [limit.police(flow(0), 1500, 0, RNG) for _ in range(2)] == [FORWARD, DROP]


def test_a_flow_beyond_its_bucket_gets_the_tokens_above_the_reserve() -> None:
    limit = policer()
    passed = sum(limit.police(flow(0), 1500, 0, RNG) for _ in range(100))
    # Ten packets of its own, and those that leave 50 kB.
    assert passed == 33
    assert limit.bucket.tokens == 50_500
    assert limit.police(flow(1), 1500, 0, RNG)
    read = limit.read(50 * MS)
    assert read.hits == {flow(0): 67 * 1500}
    assert read.dropped_items == 67


def test_a_packet_that_passes_by_spare_tokens_is_not_charged_to_its_flow() -> None:
    limit = policer(reserve=1500)
    for _ in range(60):
        assert limit.police(flow(0), 1500, 0, RNG)
    limit.program(
        Enforcement(fill_rate=0, depth=100_000, flow_rate=RATE, flow_depth=15_000, reserve=60_000),
        (),
        0,
    )
    # The flow owes its own ten packets, 120 ms. With 10,000 tokens it may owe 17 ms, 12 of them for
    # this packet.
    assert not limit.police(flow(0), 1500, 115 * MS - 1, RNG)
    assert limit.police(flow(0), 1500, 115 * MS, RNG)


def test_a_capable_flow_is_marked_until_it_owes_two_depths_and_then_dropped() -> None:
    limit = policer(reserve=100_000, excess=Excess.MARK)
    verdicts = [limit.police(flow(0), 1500, 0, RNG, capable=True) for _ in range(21)]
    # The eighth packet leaves 88,000 bytes of 80,000; the ninth would leave 86,500 of 90,000.
    assert verdicts == [FORWARD] * 8 + [MARK] * 12 + [DROP]
    read = limit.read(50 * MS)
    assert (read.marked_items, read.marked_tokens) == (12, 18_000)
    assert read.hits == {flow(0): 13 * 1500}
    assert read.forwarded_items == 20


def test_a_flow_that_is_not_capable_is_dropped_instead() -> None:
    limit = policer(reserve=100_000, excess=Excess.MARK)
    assert [limit.police(flow(0), 1500, 0, RNG) for _ in range(9)] == [FORWARD] * 8 + [DROP]


def test_in_shadow_mode_no_packet_is_marked() -> None:
    limit = policer(reserve=100_000, excess=Excess.MARK, mode=Mode.SHADOW)
    verdicts = [limit.police(flow(0), 1500, 0, RNG, capable=True) for _ in range(21)]
    assert verdicts == [FORWARD] * 21
    assert limit.read(50 * MS).marked_items == 12


def test_one_mark_of_several_limits_marks_and_one_drop_drops() -> None:
    marking = policer(reserve=100_000, excess=Excess.MARK)
    site = Policer(policy(), Enforcement(fill_rate=0, depth=18_000), 0)
    verdicts = [police([marking, site], flow(0), 1500, 0, RNG, capable=True) for _ in range(13)]
    assert verdicts == [FORWARD] * 8 + [MARK] * 4 + [DROP]
    # A packet that the site refused is charged to no bucket.
    assert marking.read(1).marked_items == 4


def test_without_a_rate_flows_are_not_policed() -> None:
    limit = Policer(policy(), Enforcement(fill_rate=0, depth=30_000, reserve=30_000), 0)
    assert sum(limit.police(flow(0), 1500, 0, RNG) for _ in range(30)) == 20


packets = st.lists(
    st.tuples(st.integers(0, 100 * MS), st.integers(1, 65_535)), min_size=1, max_size=100
)


sizes = st.integers(40, 3000)
two_flows = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 20 * MS), sizes), max_size=40)


@given(two_flows, st.integers(0, 100 * MS), sizes, st.integers(0, RATE), st.integers(0, 40_000))
def test_of_two_flows_the_one_that_owes_less_passes_whenever_the_other_does(
    trace: list[tuple[int, int, int]], pause_ns: int, length: int, fill_rate: int, reserve: int
) -> None:
    enforcement = Enforcement(
        fill_rate=fill_rate, depth=30_000, flow_rate=RATE, flow_depth=15_000, reserve=reserve
    )
    verdicts = {}
    for last in range(2):
        limit = Policer(policy(), enforcement, 0)
        now_ns = 0
        for number, gap_ns, size in trace:
            now_ns += gap_ns
            limit.police(flow(number), size, now_ns, RNG)
        now_ns += pause_ns
        limit.arrive(flow(last), length)
        slot = limit.sample.observe(flow(last), 0)
        assert slot is not None
        # The flow's debt, before this packet, beside the packet's verdict.
        verdicts[last] = max(slot.due_ns - now_ns, 0), not limit.refuses(length, now_ns, RNG)
    (owed, passes), (more, other_passes) = sorted(verdicts.values())
    assert passes or not other_passes
    assert owed < more or passes == other_passes


@given(
    st.integers(1, 4 * 10**9), st.integers(1, 10**11), st.integers(0, 10**10), st.integers(0, 2**62)
)
def test_a_packet_leaves_no_more_than_the_reserve(
    depth: int, rate: int, reserve: int, owed_ns: int
) -> None:
    buckets = FlowBuckets(Enforcement(flow_rate=rate, flow_depth=depth, reserve=reserve))
    left = buckets.left(START_NS + owed_ns, START_NS)
    assert 0 <= left <= min(reserve * NS_PER_S, MAX_TOKENS)
    assert left <= buckets.left(START_NS + owed_ns + 1, START_NS)


@given(packets, st.integers(4, 5 * 10**10), st.integers(1, 10**6))
def test_never_covers_more_than_rate_times_time_plus_depth_and_a_packet(
    trace: list[tuple[int, int]], rate: int, depth: int
) -> None:
    buckets = FlowBuckets(Enforcement(flow_rate=rate, flow_depth=depth))
    now_ns = NS_PER_S
    due_ns = passed = largest = 0
    for gap_ns, length in trace:
        now_ns += gap_ns
        charged_ns = buckets.charged(due_ns, length, now_ns)
        if buckets.covers(charged_ns, length, now_ns):
            due_ns = charged_ns
            passed += length
            largest = max(largest, length)
        # Cutting off the time of a byte gives at most a part in 1,300 away.
        allowed = rate * (now_ns - NS_PER_S) / NS_PER_S + depth + largest
        assert passed <= allowed * (1 + 1 / 1300) + 1


@given(packets, st.integers(4, 10**9), st.integers(1, 10**6))
def test_a_flow_below_its_rate_is_always_covered(
    trace: list[tuple[int, int]], rate: int, depth: int
) -> None:
    buckets = FlowBuckets(Enforcement(flow_rate=rate, flow_depth=depth))
    due_ns = now_ns = 0
    for gap_ns, length in trace:
        charged_ns = buckets.charged(due_ns, length, now_ns)
        assert buckets.covers(charged_ns, length, now_ns)
        due_ns = charged_ns
        now_ns += gap_ns + length * NS_PER_S // rate + 1


def test_a_debt_of_a_low_level_does_not_outlive_it() -> None:
    """A debt of 17 kB at a level of 1 kB/s would otherwise be 8.5 MB at 500 kB/s."""
    low = Enforcement(fill_rate=2000, depth=20_000, flow_rate=1000, flow_depth=18_000, reserve=9000)
    high = Enforcement(
        fill_rate=10**6, depth=250_000, flow_rate=500_000, flow_depth=250_000, reserve=125_000
    )
    limit = Policer(policy(), low, 0)
    for number in range(200):
        limit.police(flow(0), 1000, number * NS_PER_S // 2, RNG)
    start_ns = 100 * NS_PER_S
    limit.program(high, (), start_ns)
    # 4 MB/s of one flow, and 300 kB/s, below its level, of the one with the debt.
    passed = [0] * 4
    for number in range(4 * 4000):
        now_ns = start_ns + number * MS // 4
        limit.police(flow(1), 1000, now_ns, RNG)
        if number * 300 // 4000 != (number + 1) * 300 // 4000:
            passed[number // 4000] += limit.police(flow(0), 1000, now_ns, RNG)
    assert passed[2:] == [300, 300]
