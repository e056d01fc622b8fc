"""The BPF program and the reference in Python side by side, and random traces for both.

Both get the same packets, records, times and random numbers. The program looks at a second clock
where a packet does not conform at the first (bpf/bucket.h), so the reference does too. Its sample
has sets, so that of the reference has them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from drld.capture import kernel_layout as layout
from drld.capture.flow_identity import flow_identity, sets_of
from drld.capture.packet import parse
from drld.estimate.flows import FlowSample, FlowSlot
from drld.model import NS_PER_S, Enforcement, FlowId, FlowKey
from drld.police.policer import FORWARD, MARK, Excess, Policer, police
from drld.police.token_bucket import TokenBucket
from drld.policy import Mode
from drld.spec import LimitSpec

from ..factories import with_policy
from ..fuzz.frames import LONGEST
from .bench import ETHERNET, GRACE_NS, SEED, Bench, Draws

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
