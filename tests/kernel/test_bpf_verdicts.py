"""The BPF program and the pure Python agree on every packet of random traces, to the byte.

Both get the same packets, records, times and random numbers. The program looks at a second clock
where a packet does not conform at the first (bpf/bucket.h), so the reference does too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drld.allocators.token_bucket import TokenBucket
from drld.capture.bpf_compiler import compiled
from drld.capture.policer import Policer, police
from drld.model import NS_PER_S, Enforcement, FlowKey
from drld.spec import Mode, OnFailure

from ..factories import limit_spec
from ..fuzz.frames import LONGEST
from .bench import ETHERNET, TEST_FLAGS, Bench, Draws

pytestmark = pytest.mark.kernel

FLOW = FlowKey(17, b"\x0a\x00\x00\x01", b"\x0a\x00\x00\x02", 1, 2)
START_NS = 10**12
CLASSIFIED = 0
MAX_RATE, MAX_DEPTH = 12_500_000_000, 4 * 10**9


class TwoClocks(TokenBucket):
    """A bucket that looks at the exact time only where the coarse one does not do."""

    fine_ns = 0

    def settle(self, now_ns: int) -> None:
        before_ns = self._updated_ns
        super().settle(now_ns)
        if before_ns < now_ns and self._fill_rate >= 0 and self._tokens == self._depth:
            self._updated_ns = max(now_ns, self.fine_ns)

    def conforms(self, length: int) -> bool:
        if super().conforms(length):
            return True
        self.settle(self.fine_ns)
        return super().conforms(length)


@dataclass(frozen=True)
class Arrival:
    length: int
    after_ns: int
    behind_ns: int
    """The coarse clock."""
    draws: tuple[int, ...]


@dataclass(frozen=True)
class Order:
    limit: int
    enforcement: Enforcement
    after_ns: int


def near(*values: int) -> st.SearchStrategy[int]:
    """These, and their neighbours."""
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
enforcements = st.builds(
    Enforcement,
    drop_probability=st.sampled_from([0.0, 0.0, 0.0, 2**-32, 0.5, 1.0]),
    fill_rate=rates,
    depth=depths,
    credit=st.sampled_from([0, 1500, 10**6]),
    credit_id=st.integers(0, 2),
)
arrivals = st.builds(
    Arrival,
    length=lengths,
    after_ns=times,
    behind_ns=st.sampled_from([0, 0, 1, 800, 4_000_000]),
    draws=st.tuples(*[draws] * 3),
)
orders = st.builds(Order, limit=st.integers(0, 2), enforcement=enforcements, after_ns=times)
traces = st.lists(st.one_of(arrivals, arrivals, arrivals, orders), min_size=1, max_size=30)


@pytest.fixture(scope="module")
def benches() -> Iterator[dict[int, Bench]]:
    """Programs for one, two and three limits that every packet falls under; `CLASSIFIED`: for one
    limit that not every packet falls under, so that it has to be found."""
    code = compiled(TEST_FLAGS)
    made = {
        count: Bench(code, [limit_spec(id=i + 1, name=f"l{i}") for i in range(count)])
        for count in (1, 2, 3)
    }
    match = replace(limit_spec().match, protocol=FLOW.protocol)
    made[CLASSIFIED] = Bench(code, [limit_spec(id=1, match=match)])
    yield made
    for each in made.values():
        each.close()


def frame(length: int) -> bytes:
    header = struct.pack("!BBHHHBBH", 0x45, 0, length, 0, 0, 64, FLOW.protocol, 0)
    ports = struct.pack("!HH", FLOW.source_port, FLOW.destination_port)
    return (
        ETHERNET
        + b"\x08\x00"
        + header
        + FLOW.source
        + FLOW.destination
        + (ports + bytes(LONGEST))[: length - 20]
    )


class Pair:
    """The program and the reference, side by side."""

    def __init__(self, bench: Bench, first: Sequence[Enforcement], modes: Sequence[Mode]) -> None:
        self.bench = bench
        self.now_ns = START_NS
        limits = [
            replace(limit, mode=mode) for limit, mode in zip(bench.limits, modes, strict=True)
        ]
        bench.reset(first, START_NS, limits)
        self.buckets = [TwoClocks(record, START_NS) for record in first]
        self.policers = []
        for limit, record, bucket in zip(limits, first, self.buckets, strict=True):
            self.policers.append(Policer(limit, record, START_NS))
            self.policers[-1].bucket = bucket
        self.records = list(first)

    def arrive(self, packet: Arrival) -> bool:
        self.now_ns += packet.after_ns
        coarse_ns = self.now_ns - packet.behind_ns
        for bucket in self.buckets:
            bucket.fine_ns = self.now_ns
        expected = bool(police(self.policers, FLOW, packet.length, coarse_ns, Draws(packet.draws)))
        assert expected == self.bench.packet(
            frame(packet.length), coarse_ns, self.now_ns, packet.draws
        )
        self.compare()
        return expected

    def order(self, order: Order) -> None:
        self.now_ns += order.after_ns
        slot = order.limit % len(self.policers)
        self.bench.state.apply({slot: order.enforcement}, self.now_ns)
        self.policers[slot].program(order.enforcement, (), self.now_ns)
        self.records[slot] = order.enforcement
        self.compare()

    def compare(self) -> None:
        for slot, (policer, record) in enumerate(zip(self.policers, self.records, strict=True)):
            counted = self.bench.state.counts(slot)
            assert counted[:4] == (
                policer._forwarded_bytes,
                policer._forwarded_packets,
                policer._dropped_bytes,
                policer._dropped_packets,
            )
            assert counted[0] + counted[2] + counted[4] == policer._arrived_bytes
            assert counted[1] + counted[3] + counted[5] == policer._arrived_packets
            flows = self.bench.state.flows(slot)
            assert sum(flows[1::2]) == policer._arrived_bytes
            if record.depth is not None:
                bucket = policer.bucket
                assert self.settled(record, *self.bench.tokens(slot)) == self.settled(
                    record, bucket._tokens, bucket._updated_ns
                )

    def settled(self, record: Enforcement, tokens: int, updated_ns: int) -> int:
        """Tokens now: the two may differ in when they settled last, which changes nothing."""
        assert record.depth is not None
        tokens += record.fill_rate * max(self.now_ns - updated_ns, 0)
        return min(max(tokens, 0), record.depth * NS_PER_S)


@given(
    st.integers(0, 3),
    st.tuples(*[enforcements] * 3),
    st.tuples(*[st.sampled_from(Mode)] * 3),
    traces,
)
def test_verdicts_tokens_and_counters_agree(
    benches: dict[int, Bench],
    kind: int,
    first: tuple[Enforcement, ...],
    modes: tuple[Mode, ...],
    trace: list[Arrival | Order],
) -> None:
    count = len(benches[kind].limits)
    pair = Pair(benches[kind], first[:count], modes[:count])
    for event in trace:
        if isinstance(event, Arrival):
            pair.arrive(event)
        else:
            pair.order(event)


def test_they_agree_on_thousands_of_traces(benches: dict[int, Bench]) -> None:
    rng = Random(7)
    outcomes = {True: 0, False: 0}
    for _ in range(3000):
        bench = benches[rng.randint(0, 3)]
        count = len(bench.limits)
        pair = Pair(
            bench,
            [random_enforcement(rng) for _ in range(count)],
            rng.choices(list(Mode), k=count),
        )
        for _ in range(rng.randint(1, 20)):
            if rng.random() < 0.2:
                after_ns = rng.randint(0, 2_000_000)
                pair.order(Order(rng.randrange(3), random_enforcement(rng), after_ns))
            else:
                outcomes[pair.arrive(random_arrival(rng))] += 1
    assert min(outcomes.values()) > 5000


def random_enforcement(rng: Random) -> Enforcement:
    return Enforcement(
        drop_probability=rng.choice([0.0, 0.0, 0.0, 0.3, 1.0]),
        fill_rate=rng.choice([-1, 1, 1, 1]) * rng.choice([0, 1500, 10**6, 1_250_000, MAX_RATE]),
        depth=rng.choice([None, 0, 1499, 1500, 3001, 75_000, MAX_DEPTH]),
        credit=rng.choice([0, 1500]),
        credit_id=rng.randrange(3),
    )


def random_arrival(rng: Random) -> Arrival:
    return Arrival(
        length=rng.choice([28, 1499, 1500, 1500, 1501, LONGEST]),
        after_ns=rng.choice([0, 799, 800, 801, 1_199_999, 1_200_000, 1_500_000, NS_PER_S]),
        behind_ns=rng.choice([0, 1, 1_200_000, 4_000_000]),
        draws=(rng.getrandbits(32), rng.getrandbits(32), rng.getrandbits(32)),
    )


@pytest.mark.parametrize("late_ns", [0, 1])
def test_a_token_is_there_at_its_nanosecond_and_not_before(
    benches: dict[int, Bench], late_ns: int
) -> None:
    # 1500 bytes at 1.25 MB/s take 1.2 ms.
    pair = Pair(benches[1], [Enforcement(fill_rate=1_250_000, depth=1500)], [Mode.ENFORCE])
    no_draws = (0, 0, 0)
    assert pair.arrive(Arrival(1500, 0, 0, no_draws))
    assert pair.arrive(Arrival(1500, 1_199_999 + late_ns, 0, no_draws)) == bool(late_ns)


@pytest.mark.parametrize(("draw", "passes"), [(2**31 - 1, False), (2**31, True)])
def test_random_drop_compares_the_draw_with_its_probability(
    benches: dict[int, Bench], draw: int, passes: bool
) -> None:
    pair = Pair(benches[1], [Enforcement(drop_probability=0.5)], [Mode.ENFORCE])
    assert pair.arrive(Arrival(1500, 0, 0, (draw, 0, 0))) == passes


def test_the_exact_clock_is_asked_where_the_coarse_one_does_not_do(
    benches: dict[int, Bench],
) -> None:
    pair = Pair(benches[1], [Enforcement(fill_rate=1_250_000, depth=1500)], [Mode.ENFORCE])
    assert pair.arrive(Arrival(1500, 0, 0, (0, 0, 0)))
    assert pair.arrive(Arrival(1500, 1_200_000, 1_000_000, (0, 0, 0)))


@pytest.mark.parametrize("behind_ns", [0, 1_000_000, 8_000_000])
def test_a_burst_after_silence_is_no_larger_than_the_depth(
    benches: dict[int, Bench], behind_ns: int
) -> None:
    """However late the coarse clock is."""
    pair = Pair(benches[1], [Enforcement(fill_rate=2_500_000, depth=15_000)], [Mode.ENFORCE])
    for _ in range(3):
        passed = [
            pair.arrive(Arrival(1500, 0 if number else NS_PER_S, behind_ns, (0, 0, 0)))
            for number in range(40)
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
        bench.state.configure(slot, 0, NS_PER_S)
    last_ns = START_NS + NS_PER_S
    passed = [bench.packet(frame(1500), now, now) for now in (last_ns, last_ns, last_ns + 1)]
    bench.state.beat(last_ns + 1)
    passed += [bench.packet(frame(1500), now, now) for now in (last_ns + 2, last_ns + 2)]
    assert passed == [True, True, False, True, True]


def test_a_record_is_in_force_at_once(benches: dict[int, Bench]) -> None:
    """Though the clock stands still."""
    pair = Pair(benches[1], [Enforcement(fill_rate=1500, depth=10**6)], [Mode.ENFORCE])
    now = Arrival(1500, 0, 0, (0, 0, 0))
    assert pair.arrive(now)
    assert pair.arrive(now)
    pair.order(Order(0, Enforcement(drop_probability=1.0, fill_rate=1500, depth=10**6), 0))
    assert not pair.arrive(now)
