"""Fair dropping: the flow buckets of a limit, alone and in a policer."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from drld.allocators.flow_bucket import FlowBuckets
from drld.capture.policer import DROP, FORWARD, MARK, Policer, police
from drld.model import NS_PER_S, Enforcement
from drld.spec import Excess, Mode

from ..factories import MS, flow, limit_spec

RNG = Random(1)
RATE = 125_000


def policer(
    depth: int = 100_000,
    reserve: int = 50_000,
    mark_below: int = 0,
    excess: Excess = Excess.DROP,
    mode: Mode = Mode.ENFORCE,
) -> Policer:
    enforcement = Enforcement(
        fill_rate=0,
        depth=depth,
        flow_rate=RATE,
        flow_depth=15_000,
        reserve=reserve,
        mark_below=mark_below,
    )
    return Policer(limit_spec(mode=mode, excess=excess), enforcement, 0)


def test_a_flow_within_its_bucket_may_use_the_reserve() -> None:
    limit = policer(depth=15_000, reserve=15_000)
    assert [limit.police(flow(0), 1500, 0, RNG) for _ in range(11)] == [FORWARD] * 10 + [DROP]


def test_beyond_its_bucket_a_flow_has_what_is_above_the_reserve() -> None:
    limit = policer()
    passed = sum(limit.police(flow(0), 1500, 0, RNG) for _ in range(100))
    # Ten packets of its own, and those that leave 50 kB.
    assert passed == 33
    assert limit.bucket.tokens == 50_500
    assert limit.police(flow(1), 1500, 0, RNG)
    read = limit.read(50 * MS)
    assert read.hits == {flow(0): 67 * 1500}
    assert read.dropped_packets == 67


def test_what_passes_by_the_spare_tokens_is_not_charged_to_the_flow() -> None:
    limit = policer(reserve=1500)
    for _ in range(60):
        assert limit.police(flow(0), 1500, 0, RNG)
    # Its bucket holds as much as if only its own ten packets had passed.
    limit.program(
        Enforcement(fill_rate=0, depth=100_000, flow_rate=RATE, flow_depth=15_000, reserve=100_000),
        (),
        0,
    )
    assert not limit.police(flow(0), 1500, 11 * MS, RNG)
    assert limit.police(flow(0), 1500, 12 * MS, RNG)


def test_a_capable_flow_is_marked_for_another_depth_and_then_dropped() -> None:
    limit = policer(reserve=100_000, excess=Excess.MARK)
    verdicts = [limit.police(flow(0), 1500, 0, RNG, capable=True) for _ in range(21)]
    assert verdicts == [FORWARD] * 10 + [MARK] * 10 + [DROP]
    read = limit.read(50 * MS)
    assert (read.marked_packets, read.marked_bytes) == (10, 15_000)
    assert read.hits == {flow(0): 11 * 1500}
    assert read.forwarded_packets == 20


def test_a_flow_that_is_not_capable_is_dropped_instead() -> None:
    limit = policer(reserve=100_000, excess=Excess.MARK)
    assert [limit.police(flow(0), 1500, 0, RNG) for _ in range(11)] == [FORWARD] * 10 + [DROP]


def test_a_capable_packet_is_marked_where_the_bucket_runs_low() -> None:
    limit = policer(depth=6000, reserve=0, mark_below=3000, excess=Excess.MARK)
    verdicts = [limit.police(flow(n), 1500, 0, RNG, capable=True) for n in range(5)]
    assert verdicts == [FORWARD, FORWARD, MARK, MARK, DROP]


def test_in_shadow_mode_no_packet_is_marked() -> None:
    limit = policer(reserve=100_000, excess=Excess.MARK, mode=Mode.SHADOW)
    verdicts = [limit.police(flow(0), 1500, 0, RNG, capable=True) for _ in range(21)]
    assert verdicts == [FORWARD] * 21
    assert limit.read(50 * MS).marked_packets == 10


def test_of_several_limits_one_mark_marks_and_one_drop_drops() -> None:
    marking = policer(reserve=100_000, excess=Excess.MARK)
    site = Policer(limit_spec(), Enforcement(fill_rate=0, depth=18_000), 0)
    verdicts = [police([marking, site], flow(0), 1500, 0, RNG, capable=True) for _ in range(13)]
    assert verdicts == [FORWARD] * 10 + [MARK] * 2 + [DROP]
    # What the site refused was charged to nobody.
    assert marking.read(1).marked_packets == 2


def test_without_a_rate_flows_are_not_policed() -> None:
    limit = Policer(limit_spec(), Enforcement(fill_rate=0, depth=30_000, reserve=30_000), 0)
    assert sum(limit.police(flow(0), 1500, 0, RNG) for _ in range(30)) == 20


packets = st.lists(
    st.tuples(st.integers(0, 100 * MS), st.integers(1, 65_535)), min_size=1, max_size=100
)


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
