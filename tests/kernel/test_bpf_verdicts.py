"""The BPF program and the pure Python agree on every packet of random traces, to the byte."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drld.capture import kernel_layout as layout
from drld.capture.kernel.datapath import limiter_programs
from drld.capture.kernel.state import State
from drld.capture.spec import match_of
from drld.errors import DatapathError
from drld.model import NS_PER_S, Enforcement
from drld.police.policer import DROP, FORWARD, MARK, Excess
from drld.policy import Mode
from drld.spec import OnFailure

from ..factories import limit_spec
from ..fuzz.frames import LONGEST
from .bench import TEST_FLAGS, Bench
from .verdict_pair import (
    CLASSIFIED,
    FLOW,
    FLOWS,
    MAX_DEPTH,
    MAX_RATE,
    NOT_CAPABLE,
    PROTOCOL,
    SEGMENTS,
    START_NS,
    Arrival,
    Order,
    Pair,
    Reload,
    enforcements,
    frame,
    specifics,
    traces,
)


@pytest.fixture(scope="session")
def benches() -> Iterator[dict[int, Bench]]:
    """Programs for one, two and three limits that every packet falls under; `CLASSIFIED`: for one
    limit that not every packet falls under, so that it has to be found."""
    code = limiter_programs(TEST_FLAGS)
    made = {
        count: Bench(code, [limit_spec(id=i + 1, name=f"l{i}") for i in range(count)])
        for count in (1, 2, 3)
    }
    match = replace(match_of(limit_spec()), protocol=PROTOCOL)
    made[CLASSIFIED] = Bench(code, [limit_spec(id=1, match=match)])
    yield made
    for each in made.values():
        each.close()


@given(
    st.integers(0, 3), st.tuples(*[enforcements] * 3), st.tuples(*[specifics] * 3), traces
)  # fmt: skip
def test_verdicts_tokens_counters_and_flows_agree(
    benches: dict[int, Bench],
    kind: int,
    first: tuple[Enforcement, ...],
    specific: tuple[tuple[Mode, Excess], ...],
    trace: list[Arrival | Order | Reload],
) -> None:
    count = len(benches[kind].limits)
    modes, excesses = zip(*specific[:count], strict=True)
    pair = Pair(benches[kind], first[:count], modes, excesses)
    for event in trace:
        pair.happen(event)


def test_both_datapaths_agree_on_thousands_of_traces(benches: dict[int, Bench]) -> None:
    rng = Random(7)
    outcomes = {DROP: 0, FORWARD: 0, MARK: 0}
    for _ in range(3000):
        for verdict in random_trace(rng, benches[rng.randint(0, 3)]):
            outcomes[verdict] += 1
    assert min(outcomes.values()) > 500


def random_trace(rng: Random, bench: Bench) -> Iterator[int]:
    count = len(bench.limits)
    pair = Pair(
        bench,
        [random_enforcement(rng) for _ in range(count)],
        rng.choices(list(Mode), k=count),
        rng.choices([Excess.DROP, Excess.MARK, Excess.MARK], k=count),
    )
    for _ in range(rng.randint(1, 20)):
        if rng.random() < 0.2:
            after_ns = rng.randint(0, 2_000_000)
            evict = frozenset(flow for flow in range(len(FLOWS)) if rng.random() < 0.2)
            pair.order(Order(rng.randrange(3), random_enforcement(rng), after_ns, evict))
        else:
            yield pair.arrive(random_arrival(rng))


def random_enforcement(rng: Random) -> Enforcement:
    return Enforcement(
        drop_probability=rng.choice([*[0.0] * 8, 0.3, 1.0]),
        fill_rate=rng.choice([-1, 1, 1, 1]) * rng.choice([0, 1500, 10**6, 1_250_000, MAX_RATE]),
        depth=rng.choice([None, 0, 1499, 1500, 3001, *[75_000] * 8, MAX_DEPTH]),
        credit=rng.choice([0, 1500]),
        credit_id=rng.randrange(3),
        flow_rate=rng.choice([0, 1500, 1500, 1_250_000, 1_250_000, MAX_RATE]),
        flow_depth=rng.choice([0, 1500, 3000, 15_000, *[75_000] * 3]),
        reserve=rng.choice([0, 1500, 40_000, 75_000, *[MAX_DEPTH] * 3]),
    )


def random_arrival(rng: Random) -> Arrival:
    return Arrival(
        length=rng.choice([28, 1499, 1500, 1500, 1501, LONGEST]),
        after_ns=rng.choice([0, 799, 800, 801, 1_199_999, 1_200_000, 1_500_000, NS_PER_S]),
        behind_ns=rng.choice([0, 1, 1_200_000, 4_000_000]),
        draws=(rng.getrandbits(32), rng.getrandbits(32), rng.getrandbits(32)),
        flow=rng.choice([0, 0, 0, *range(len(FLOWS))]),
        ecn=rng.choice([0, 1, 2, 2, 3]),
        segments=rng.choice([1] * 12 + [45, SEGMENTS]),
    )


@pytest.mark.parametrize("late_ns", [0, 1])
def test_a_token_is_there_at_its_nanosecond_and_not_before(
    benches: dict[int, Bench], late_ns: int
) -> None:
    # 1500 bytes at 1.25 MB/s take 1.2 ms.
    pair = Pair(benches[1], [Enforcement(fill_rate=1_250_000, depth=1500)])
    assert pair.arrive(Arrival(1500, 0, 0))
    assert pair.arrive(Arrival(1500, 1_199_999 + late_ns, 0)) == bool(late_ns)


@pytest.mark.parametrize(("draw", "passes"), [(2**31 - 1, False), (2**31, True)])
def test_random_drop_compares_the_draw_with_its_probability(
    benches: dict[int, Bench], draw: int, passes: bool
) -> None:
    pair = Pair(benches[1], [Enforcement(drop_probability=0.5)])
    assert pair.arrive(Arrival(1500, 0, 0, (draw, 0, 0))) == passes


def test_the_exact_clock_is_asked_where_the_coarse_one_does_not_do(
    benches: dict[int, Bench],
) -> None:
    pair = Pair(benches[1], [Enforcement(fill_rate=1_250_000, depth=1500)])
    assert pair.arrive(Arrival(1500, 0, 0))
    assert pair.arrive(Arrival(1500, 1_200_000, 1_000_000))


@pytest.mark.parametrize("behind_ns", [0, 1_000_000, 8_000_000])
def test_a_burst_after_silence_is_no_larger_than_the_depth(
    benches: dict[int, Bench], behind_ns: int
) -> None:
    """The coarse clock may be late."""
    pair = Pair(benches[1], [Enforcement(fill_rate=2_500_000, depth=15_000)])
    for _ in range(3):
        passed = [
            pair.arrive(Arrival(1500, 0 if number else NS_PER_S, behind_ns)) for number in range(40)
        ]
        assert passed == [True] * 10 + [False] * 30


@pytest.mark.parametrize("kind", [CLASSIFIED, 1, 2])
def test_a_daemon_is_dead_as_soon_as_the_clock_says_so(
    benches: dict[int, Bench], kind: int
) -> None:
    bench = benches[kind]
    limits = [replace(limit, on_failure=OnFailure.CLOSED) for limit in bench.limits]
    bench.reset([Enforcement(fill_rate=1500, depth=10**6)] * len(limits), START_NS, limits)
    for slot in range(len(limits)):
        bench.state.configure(slot, 0, NS_PER_S, bytes(20))
    last_ns = START_NS + NS_PER_S
    passed = [bench.packet(frame(1500, FLOW), now, now) for now in (last_ns, last_ns, last_ns + 1)]
    bench.state.beat(last_ns + 1)
    passed += [bench.packet(frame(1500, FLOW), now, now) for now in (last_ns + 2, last_ns + 2)]
    assert passed == [True, True, False, True, True]


@pytest.mark.parametrize("on_failure", [OnFailure.OPEN, OnFailure.CLOSED])
def test_a_daemon_that_was_late_finds_the_tokens_that_were_left(
    benches: dict[int, Bench], on_failure: OnFailure
) -> None:
    """A fallback without a bucket leaves the bucket alone, also if the next record is another."""
    bench = benches[1]
    limits = [replace(bench.limits[0], on_failure=on_failure)]
    bench.reset([Enforcement(fill_rate=1500, depth=15_000)], START_NS, limits)
    bench.state.configure(0, 0, NS_PER_S, bytes(20))
    packet = frame(1500, FLOW)
    assert [bench.packet(packet, START_NS, START_NS) for _ in range(10)] == [FORWARD] * 10
    dead_ns = START_NS + 2 * NS_PER_S
    fallen_back = bench.packet(packet, dead_ns, dead_ns)
    assert fallen_back == (FORWARD if on_failure is OnFailure.OPEN else DROP)
    bench.state.apply({0: Enforcement(fill_rate=1000, depth=15_000)}, dead_ns)
    bench.state.beat(dead_ns)
    passed = [bench.packet(packet, dead_ns, dead_ns) for _ in range(3)]
    assert passed == [FORWARD, FORWARD, DROP]


def test_a_record_is_in_force_at_once(benches: dict[int, Bench]) -> None:
    """It is in force although the clock stands still."""
    pair = Pair(benches[1], [Enforcement(fill_rate=1500, depth=10**6)])
    now = Arrival(1500, 0, 0)
    assert pair.arrive(now)
    assert pair.arrive(now)
    pair.order(Order(0, Enforcement(drop_probability=1.0, fill_rate=1500, depth=10**6), 0))
    assert not pair.arrive(now)


@pytest.mark.parametrize("kind", [CLASSIFIED, 1, 2])
@pytest.mark.parametrize("late_ns", [0, 1])
def test_the_tokens_that_a_packet_leaves_are_exact_to_the_nanosecond(
    benches: dict[int, Bench], kind: int, late_ns: int
) -> None:
    """The time depends on both buckets: they fill while the flow owes less."""
    record = Enforcement(
        fill_rate=125_000, depth=15_000, flow_rate=125_000, flow_depth=15_000, reserve=15_000
    )
    pair = Pair(benches[kind], [record] * len(benches[kind].limits))
    assert verdicts(pair, 0, 6) == [FORWARD] * 5 + [DROP]
    # 7,500 tokens, and 10,500 for a packet that leaves what its flow owes: 3,000 too few, of which
    # each millisecond gives 125 and forgives 125.
    assert pair.arrive(Arrival(1500, 12_000_000 - 1 + late_ns, 0)) == bool(late_ns)


def test_the_largest_reserve_and_debt_of_a_flow_leave_no_63_bits(
    benches: dict[int, Bench],
) -> None:
    """A reserve of 2^62 tokens, of which a flow has used all and owes as much again."""
    record = Enforcement(depth=MAX_DEPTH, flow_rate=1, flow_depth=10**8, reserve=10**10)
    pair = Pair(benches[1], [record], excesses=[Excess.MARK])
    large = Arrival(LONGEST, 0, 0, segments=SEGMENTS, ecn=2)
    seen = [pair.arrive(large) for _ in range(1500)]
    marked, dropped = seen.index(MARK), seen.index(DROP)
    assert 0 < marked < dropped
    assert seen == [FORWARD] * marked + [MARK] * (dropped - marked) + [DROP] * (1500 - dropped)


@pytest.mark.parametrize("kind", [CLASSIFIED, 1, 2])
def test_a_debt_of_a_low_level_does_not_outlive_it(benches: dict[int, Bench], kind: int) -> None:
    low = Enforcement(depth=75_000, flow_rate=1000, flow_depth=18_000, reserve=1500)
    pair = Pair(benches[kind], [low] * len(benches[kind].limits))
    assert verdicts(pair, 0, 12) == [FORWARD] * 12
    high = replace(low, flow_rate=10**6, flow_depth=500_000, reserve=75_000)
    for number in range(len(pair.limits)):
        pair.order(Order(number, high, 0))
    assert verdicts(pair, 0, 1) == [DROP]
    # Twice half a second, and 65,536 bytes at one a microsecond.
    (flow,) = pair.bench.flows(0).values()
    assert flow.due_ns == START_NS + 2 * NS_PER_S // 2 + 65_536_000


@pytest.mark.parametrize("late_ns", [0, 1])
@pytest.mark.parametrize("kind", [CLASSIFIED, 1, 2])
def test_a_debt_is_paid_to_the_nanosecond_and_never_forgiven(
    benches: dict[int, Bench], kind: int, late_ns: int
) -> None:
    """A super-packet of half a megabyte leaves a bucket of 3 kB in debt for half a second."""
    record = Enforcement(fill_rate=10**6, depth=3000)
    pair = Pair(benches[kind], [record] * len(benches[kind].limits))
    large = Arrival(1500, 0, 0, segments=SEGMENTS)
    assert pair.arrive(large)
    assert not pair.arrive(large)
    # A debt of a packet's bytes less 3 kB; then 1,500 bytes, at 1 byte a microsecond.
    paid_ns = (large.charged - 3000 + 1500) * 1000
    assert pair.arrive(Arrival(1500, paid_ns - 1 + late_ns, 0)) == bool(late_ns)


def test_the_largest_bucket_and_debt_leave_no_63_bits(benches: dict[int, Bench]) -> None:
    """4 GB, 400 Gbit/s, and a second of pause: more would have run over."""
    pair = Pair(benches[1], [Enforcement(fill_rate=MAX_RATE, depth=MAX_DEPTH)])
    large = Arrival(LONGEST, 0, 0, segments=SEGMENTS)
    for after_ns in (0, 1, 2 * 10**7, 10**8, NS_PER_S, 2**40):
        assert pair.arrive(replace(large, after_ns=after_ns))
    pair.order(Order(0, Enforcement(fill_rate=MAX_RATE, depth=1500), 0))
    assert pair.arrive(large)
    assert not pair.arrive(large)
    assert pair.arrive(Arrival(1500, 2**40, 0))


POLICED = Enforcement(
    fill_rate=10**6, depth=75_000, flow_rate=10**5, flow_depth=4500, reserve=75_000
)
"""A flow's first packet leaves 25 kB, the second one 50 kB, and the third one the whole depth."""


def verdicts(pair: Pair, flow: int, count: int = 4, ecn: int = NOT_CAPABLE) -> list[int]:
    return [pair.arrive(Arrival(1500, 0, 0, flow=flow, ecn=ecn)) for _ in range(count)]


def test_a_flow_that_enters_in_the_place_of_another_has_a_bucket_of_its_own(
    benches: dict[int, Bench],
) -> None:
    pair = Pair(benches[1], [POLICED])
    for flow in range(8):
        pair.order(Order(0, POLICED, NS_PER_S))
        assert verdicts(pair, flow) == [FORWARD, FORWARD, DROP, DROP]
    # Both sets are full: a flow that is in no sample is not policed.
    pair.order(Order(0, POLICED, NS_PER_S))
    assert verdicts(pair, 8) == [FORWARD] * 4
    pair.order(Order(0, POLICED, NS_PER_S, frozenset({2})))
    assert verdicts(pair, 8) == [FORWARD, FORWARD, DROP, DROP]
    assert verdicts(pair, 2) == [FORWARD] * 4


def test_a_reload_may_mark_packets_that_were_dropped(benches: dict[int, Bench]) -> None:
    pair = Pair(benches[1], [POLICED])
    assert verdicts(pair, 0, ecn=2) == [FORWARD, FORWARD, DROP, DROP]
    pair.reload(Reload(0, Mode.ENFORCE, Excess.MARK))
    assert verdicts(pair, 0, 6, ecn=2) == [MARK] * 4 + [DROP, DROP]
    pair.reload(Reload(0, Mode.SHADOW, Excess.MARK))
    assert verdicts(pair, 0, ecn=2) == [FORWARD] * 4
    assert pair.policers[0]._dropped_items == 8


def test_flows_are_not_policed_while_the_daemon_is_dead(benches: dict[int, Bench]) -> None:
    """The fallback is a plain bucket, so the flow's debt is that of the last level."""
    bench = benches[1]
    pair = Pair(bench, [POLICED])
    bench.state.configure(0, 0, NS_PER_S, bytes(20))
    assert verdicts(pair, 0) == [FORWARD, FORWARD, DROP, DROP]
    dead_ns = START_NS + NS_PER_S + 1
    assert [bench.packet(frame(1500, FLOW), dead_ns, dead_ns) for _ in range(4)] == [FORWARD] * 4
    bench.state.beat(dead_ns)
    now_ns = dead_ns + 1
    # Of the second before, 100 kB: its bucket is full.
    passed = [bench.packet(frame(1500, FLOW), now_ns, now_ns) for _ in range(4)]
    assert passed == [FORWARD, FORWARD, DROP, DROP]


def test_the_next_daemon_takes_over_buckets_of_flows(benches: dict[int, Bench]) -> None:
    """The program goes on with the maps in which the dead daemon left it."""
    bench = benches[1]
    pair = Pair(bench, [POLICED])
    before = verdicts(pair, 0), verdicts(pair, 1, 1)
    assert before == ([FORWARD, FORWARD, DROP, DROP], [FORWARD])
    bench.adopt(limiter_programs(TEST_FLAGS)["apply"])
    pair.compare()
    assert verdicts(pair, 0) == [DROP] * 4
    assert verdicts(pair, 1) == [FORWARD, DROP, DROP, DROP]
    pair.order(Order(0, replace(POLICED, flow_rate=10**6), NS_PER_S, frozenset({0})))
    assert verdicts(pair, 0) == verdicts(pair, 1) == [FORWARD, FORWARD, DROP, DROP]


def test_maps_of_another_version_are_not_taken_over(benches: dict[int, Bench]) -> None:
    state, apply = benches[1].state, limiter_programs(TEST_FLAGS)["apply"]
    memory = state.maps["control"].memory()
    struct.pack_into("=I", memory, 8, layout.ABI - 1)
    try:
        with pytest.raises(DatapathError, match=f"version {layout.ABI - 1}, not {layout.ABI}"):
            State.adopt(state.handover_ids, apply)
    finally:
        struct.pack_into("=I", memory, 8, layout.ABI)


def test_maps_that_outgrow_their_room_keep_buckets_of_flows(benches: dict[int, Bench]) -> None:
    bench = benches[1]
    pair = Pair(bench, [POLICED])
    verdicts(pair, 0)
    larger = State.create(
        2 * bench.state.capacity, bench.cpus, limiter_programs(TEST_FLAGS)["apply"]
    )
    with contextlib.closing(larger):
        bench.state.copy_to(larger)
        assert any(larger.flow_buckets(0))
        assert larger.flow_buckets(0) == bench.state.flow_buckets(0)
        assert larger.flows(0) == bench.state.flows(0)
