"""The BPF program and the pure Python agree on every packet of random traces, to the byte.

Both get the same packets, records, times and random numbers. The program looks at a second clock
where a packet does not conform at the first (bpf/bucket.h), so the reference does too. Its sample
has sets, so that of the reference has them.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drld.capture import kernel_layout as layout
from drld.capture.flow_identity import flow_identity, sets_of
from drld.capture.kernel.datapath import limiter_programs
from drld.capture.kernel.state import State
from drld.capture.packet import parse
from drld.capture.spec import match_of
from drld.errors import DatapathError
from drld.estimate.flows import FlowSample, FlowSlot
from drld.model import NS_PER_S, Enforcement, FlowId, FlowKey
from drld.police.policer import DROP, FORWARD, MARK, Excess, Policer, police
from drld.police.token_bucket import TokenBucket
from drld.policy import Mode
from drld.spec import LimitSpec, OnFailure

from ..factories import limit_spec, with_policy
from ..fuzz.frames import LONGEST
from .bench import ETHERNET, GRACE_NS, SEED, TEST_FLAGS, Bench, Draws

pytestmark = pytest.mark.kernel

PROTOCOL, HEADERS = 17, 28
START_NS = 10**12
CLASSIFIED = 0
MAX_RATE, MAX_DEPTH = 50_000_000_000, 4 * 10**9
"""400 Gbit/s, and what a configuration may ask for."""
SEGMENTS = 18_000
"""Segments of the largest super-packet: 504 kB of headers alone."""
NOT_CAPABLE, CE = 0, 3
DRAWS = (0, 0, 0)


def frame(length: int, flow: FlowKey, ecn: int = 0) -> bytes:
    header = struct.pack("!BBHHHBBH", 0x45, ecn, length, 0, 0, 64, PROTOCOL, 0)
    ports = struct.pack("!HH", flow.source_port, flow.destination_port)
    return (
        ETHERNET
        + b"\x08\x00"
        + header
        + flow.source
        + flow.destination
        + (ports + bytes(LONGEST))[: length - 20]
    )


def identity(flow: FlowKey) -> int:
    return flow_identity(parse(frame(HEADERS, flow)[len(ETHERNET) + 2 :]).flow, SEED)


def _flows() -> list[FlowKey]:
    """Nine flows that have the same two sets of the table, with room for eight; two flows that have
    the first of these sets and another one; and a flow that has others."""
    flows = [FlowKey(PROTOCOL, b"\x0a\0\0\1", b"\x0a\0\0\2", port, 2) for port in range(1, 2500)]
    sets = {flow: sets_of(identity(flow)) for flow in flows}
    mine, other = sets[flows[0]]
    alike = [flow for flow in flows if sets[flow] == (mine, other)][:6]
    reverse = [flow for flow in flows if sets[flow] == (other, mine)][:3]
    half = [flow for flow in flows if sets[flow][0] == mine and sets[flow][1] != other][:2]
    elsewhere = next(flow for flow in flows if not {mine, other} & set(sets[flow]))
    found = [*alike, *reverse, *half, elsewhere]
    assert len(found) == 12
    return found


FLOWS = _flows()
FLOW = FLOWS[0]


class TwoClocks(TokenBucket):
    """A bucket that looks at the exact time only where the coarse one does not do."""

    fine_ns = 0

    def settle(self, now_ns: int) -> None:
        before_ns = self.updated_ns
        super().settle(now_ns)
        full = self._depth is not None and not self.missing
        if before_ns < now_ns and self._fill_rate >= 0 and full:
            self.updated_ns = max(now_ns, self.fine_ns)

    def conforms(self, length: int) -> bool:
        if super().conforms(length):
            return True
        self.settle(self.fine_ns)
        return super().conforms(length)

    def spares(self, length: int, left: int) -> bool:
        if super().spares(length, left):
            return True
        self.settle(self.fine_ns)
        return super().spares(length, left)


class Sets(FlowSample):
    """A sample of sets with four places each. A flow has two sets to enter (`place_beyond`)."""

    def __init__(self) -> None:
        super().__init__()
        self._set: dict[FlowId, int] = {}

    def observe(self, flow: FlowId, length: int) -> FlowSlot | None:
        assert isinstance(flow, FlowKey)
        if flow not in self._slots:
            first, second = sets_of(identity(flow))
            taken = [self._set[there] for there in self._slots]
            here, there = taken.count(first), taken.count(second)
            if here == there == 4:
                return None
            self._set[flow] = second if here >= 2 and there < here else first
        return super().observe(flow, length)


@dataclass(frozen=True)
class Arrival:
    length: int
    after_ns: int
    behind_ns: int
    """The coarse clock."""
    draws: tuple[int, ...] = DRAWS
    flow: int = 0
    """Index into `FLOWS`."""
    ecn: int = NOT_CAPABLE
    segments: int = 1
    """More: a super-packet."""

    @property
    def charged(self) -> int:
        """Bytes on the wire."""
        if self.length <= HEADERS:
            return self.length
        return self.length + (self.segments - 1) * HEADERS


@dataclass(frozen=True)
class Order:
    limit: int
    enforcement: Enforcement
    after_ns: int
    evict: frozenset[int] = frozenset()
    """Flows that leave the sample, as indices into `FLOWS`."""


@dataclass(frozen=True)
class Reload:
    limit: int
    mode: Mode
    excess: Excess


def near(*values: int) -> st.SearchStrategy[int]:
    """These values, and their neighbours."""
    return st.sampled_from(sorted({max(value + d, 0) for value in values for d in (-1, 0, 1)}))


lengths = st.one_of(near(29, 576, 1500, LONGEST - 1), st.integers(28, LONGEST))
rates = st.one_of(
    st.sampled_from([0, 1, 7, 1500, 10**6, 1_250_000, MAX_RATE]), st.integers(0, MAX_RATE)
).flatmap(lambda rate: st.sampled_from([rate, rate, -rate]))
depths = st.one_of(
    st.none(), near(0, 1500, 3000, 75_000), st.integers(0, 10**6), st.just(MAX_DEPTH)
)
# 1500 bytes at 1.25 MB/s take 1.2 ms, at 1 MB/s 1.5 ms, at 1500 B/s one second.
times = st.one_of(
    near(0, 800, 1_200_000, 1_500_000, NS_PER_S, 2**40), st.integers(0, 100 * NS_PER_S)
)
draws = st.one_of(near(0, 2**31, 2**32 - 2), st.integers(0, 2**32 - 1))
amounts = st.one_of(st.just(0), near(1500, 3000, 75_000), st.sampled_from([10**6, MAX_DEPTH]))
enforcements = st.builds(
    Enforcement,
    drop_probability=st.sampled_from([0.0, 0.0, 0.0, 2**-32, 0.5, 1.0]),
    fill_rate=rates,
    depth=depths,
    credit=st.sampled_from([0, 1500, 10**6]),
    credit_id=st.integers(0, 2),
    flow_rate=st.sampled_from([0, 1, 1500, 10**6, 1_250_000, 1_250_000, MAX_RATE]),
    flow_depth=amounts,
    reserve=amounts,
)
arrivals = st.builds(
    Arrival,
    length=lengths,
    after_ns=times,
    behind_ns=st.sampled_from([0, 0, 1, 800, 4_000_000]),
    draws=st.tuples(*[draws] * 3),
    flow=st.sampled_from([0, 0, *range(len(FLOWS))]),
    ecn=st.integers(0, 3),
    segments=st.sampled_from([1, 1, 1, 1, 45, SEGMENTS]),
)
orders = st.builds(
    Order,
    limit=st.integers(0, 2),
    enforcement=enforcements,
    after_ns=times,
    evict=st.frozensets(st.integers(0, len(FLOWS) - 1)),
)
reloads = st.builds(
    Reload, limit=st.integers(0, 2), mode=st.sampled_from(Mode), excess=st.sampled_from(Excess)
)
specifics = st.tuples(st.sampled_from(Mode), st.sampled_from(Excess))
traces = st.lists(
    st.one_of(arrivals, arrivals, arrivals, arrivals, orders, reloads), min_size=1, max_size=30
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


class Pair:
    """The program and the reference, side by side."""

    def __init__(
        self,
        bench: Bench,
        first: Sequence[Enforcement],
        modes: Sequence[Mode] = (),
        excesses: Sequence[Excess] = (),
    ) -> None:
        self.bench = bench
        self.now_ns = START_NS
        count = len(bench.limits)
        self.limits = [
            with_policy(limit, mode=mode, excess=excess)
            for limit, mode, excess in zip(
                bench.limits,
                modes or [Mode.ENFORCE] * count,
                excesses or [Excess.DROP] * count,
                strict=True,
            )
        ]
        bench.reset(first, START_NS, self.limits)
        self.buckets = [TwoClocks(record, START_NS) for record in first]
        self.policers = []
        for limit, record, bucket in zip(self.limits, first, self.buckets, strict=True):
            self.policers.append(Policer(limit.policy, record, START_NS))
            self.policers[-1].bucket = bucket
            self.policers[-1].sample = Sets()
        self.records = list(first)
        self.whole = True
        """Whether no super-packet came, whose segments the reference does not know."""
        self.earlier = [dict[int, tuple[int, int]]() for _ in first]
        """Bytes and hits of flows that had a place before, by limit and place."""

    def arrive(self, packet: Arrival) -> int:
        self.now_ns += packet.after_ns
        coarse_ns = self.now_ns - packet.behind_ns
        for bucket in self.buckets:
            bucket.fine_ns = self.now_ns
        expected = police(
            self.policers,
            FLOWS[packet.flow],
            packet.charged,
            coarse_ns,
            Draws(packet.draws),
            capable=packet.ecn != NOT_CAPABLE,
        )
        super_packet = packet.segments > 1
        self.whole &= not super_packet
        said = self.bench.packet(
            frame(packet.length, FLOWS[packet.flow], packet.ecn),
            coarse_ns,
            self.now_ns,
            packet.draws,
            segment=1 if super_packet else 0,
            segments=packet.segments if super_packet else 0,
        )
        # A packet that bears the mark already is left as it is.
        assert said == (FORWARD if expected == MARK and packet.ecn == CE else expected)
        self.compare()
        return expected

    def order(self, order: Order) -> None:
        self.now_ns += order.after_ns
        slot = order.limit % len(self.policers)
        self.bench.state.apply({slot: order.enforcement}, self.now_ns)
        leaving = [FLOWS[flow] for flow in sorted(order.evict)]
        there = self.bench.flows(slot)
        for flow in leaving:
            if identity(flow) in there:
                place, size, _, hits = there[identity(flow)]
                self.bench.state.evict(slot, place)
                self.earlier[slot][place] = size, hits
        self.policers[slot].program(order.enforcement, leaving, self.now_ns)
        self.records[slot] = order.enforcement
        self.compare()

    def reload(self, reload: Reload) -> None:
        slot = reload.limit % len(self.policers)
        self.limits[slot] = with_policy(self.limits[slot], mode=reload.mode, excess=reload.excess)
        configure(self.bench, slot, self.limits[slot])
        self.policers[slot].reconfigure(self.limits[slot].policy)

    def happen(self, event: Arrival | Order | Reload) -> None:
        if isinstance(event, Arrival):
            self.arrive(event)
        elif isinstance(event, Order):
            self.order(event)
        else:
            self.reload(event)

    def compare(self) -> None:
        for slot, (policer, record) in enumerate(zip(self.policers, self.records, strict=True)):
            counted = self.bench.state.counts(slot)
            assert counted[:2] + counted[3:4] == (
                policer._forwarded_tokens,
                policer._dropped_tokens,
                policer._marked_tokens,
            )
            assert sum(counted[:3]) == policer._arrived_tokens
            if self.whole:
                assert counted[4:6] + counted[7:] == (
                    policer._forwarded_items,
                    policer._dropped_items,
                    policer._marked_items,
                )
                assert sum(counted[4:7]) == policer._arrived_items
            assert self.sampled(slot) == {
                identity(flow): (state.size, state.due_ns, state.hits)
                for flow, state in policer.sample._slots.items()
                if isinstance(flow, FlowKey)
            }
            if record.depth is not None:
                bucket = policer.bucket
                assert self.settled(record, *self.bench.tokens(slot)) == self.settled(
                    record, record.depth * NS_PER_S - bucket.missing, bucket.updated_ns
                )

    def sampled(self, slot: int) -> dict[int, tuple[int, int, int]]:
        """The program's sample: bytes, due_ns and hits by flow."""
        found = {}
        for flow, (place, size, due_ns, hits) in self.bench.flows(slot).items():
            size_before, hits_before = self.earlier[slot].get(place, (0, 0))
            found[flow] = size - size_before, due_ns, hits - hits_before
        return found

    def settled(self, record: Enforcement, tokens: int, updated_ns: int) -> int:
        """Tokens now: the two may differ in when they settled last, which changes nothing."""
        assert record.depth is not None
        later = tokens + record.fill_rate * max(self.now_ns - updated_ns, 0)
        if record.fill_rate < 0:
            return max(later, min(tokens, 0))
        return min(later, record.depth * NS_PER_S)


def configure(bench: Bench, slot: int, limit: LimitSpec) -> None:
    policy = limit.policy
    bench.state.configure(slot, layout.limit_flags(policy), GRACE_NS, layout.source_bits(policy))


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
    """Though the clock stands still."""
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


def test_a_reload_marks_whom_it_dropped(benches: dict[int, Bench]) -> None:
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
