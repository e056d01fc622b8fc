"""The verdict on one packet, in pure Python: count, sample, drop at random, police.

A packet falls under an ordered list of limits (customer, then site), checked in that order. The
first enforcing limit that refuses the packet ends the check and counts the drop. A packet that no
limit refuses is charged to every limit to which it conforms. So all limits are charged, or none. A
limit in shadow mode is checked and charged like any other. It counts the packets that it would have
dropped or marked, but refuses and marks no packet.

Within a limit: random drop, then the limit's bucket, then the bucket of the packet's flow
(drld.police.flow_bucket). With `excess = "mark"` an ECN-capable packet (RFC 3168) is marked where
it would not leave its part of the reserve. It is dropped if the limit's bucket does not cover it.
It is also dropped if it lacks its part of the reserve and its flow owes more than two depths. So a
flow that ignores marks gains nothing. The time of a flow's bucket is the time up to which the
limit's bucket is settled. A limit without a bucket has no flow buckets.

`drld.capture.nfqueue.datapath` runs this for each packet; the kernel datapath repeats it in C.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from copy import copy
from random import Random

from drld.estimate.flows import FlowSample, FlowSlot
from drld.model import NO_COUNTS, NS_PER_S, Enforcement, FlowId, Measurement
from drld.mypyc import mypyc_attr
from drld.police.flow_bucket import MARKED_SPANS, SCALE_BITS, FlowBuckets
from drld.police.source_sample import SourcePrefix, SourceSample
from drld.police.token_bucket import TokenBucket
from drld.policy import Mode, Policy

DRAW_BITS = 32
"""Bits of a random draw. A packet is dropped if its draw is below the scaled probability."""

DROP, FORWARD, MARK = 0, 1, 2
"""Verdicts. All but `DROP` are true: the packet passes, after `MARK` with a congestion mark."""


class Excess(enum.Enum):
    """The fate of packets above the limit."""

    DROP = "drop"
    MARK = "mark"
    """ECN-capable packets are marked (CE, RFC 3168) first, and dropped as the bucket empties."""


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Policer:
    """One limit's counters, flow sample, random drop, token bucket and flow buckets."""

    __slots__ = (
        "_arrived_items",
        "_arrived_tokens",
        "_charged_ns",
        "_dropped_items",
        "_dropped_tokens",
        "_flow",
        "_flow_buckets",
        "_forwarded_items",
        "_forwarded_tokens",
        "_marked_items",
        "_marked_tokens",
        "_owed_tokens",
        "_read_ns",
        "_slot",
        "_verdict",
        "bucket",
        "drop_threshold",
        "marks",
        "sample",
        "shadow",
        "unit",
    )

    def __init__(self, policy: Policy, enforcement: Enforcement, now_ns: int) -> None:
        self._flow = policy.flow
        self.unit = policy.unit
        self.sample = _sample(policy.flow)
        self.bucket = TokenBucket(enforcement, now_ns)
        self._read_ns = now_ns
        self._slot: FlowSlot | None = None
        """Slot of the flow of the current packet; None if the flow is not in the sample."""
        self._charged_ns: int | None = None
        """`due_ns` of that flow if the current packet is forwarded, ns; None: no change."""
        self._verdict = FORWARD
        """Verdict on the current packet, if no limit refuses it."""
        self._adopt(enforcement)
        self._clear()
        self.reconfigure(policy)

    def reconfigure(self, policy: Policy) -> None:
        """Adopt a changed policy of the same limit; counters and tokens stay.

        The sample begins empty if the limit's definition of a flow changes.
        """
        self.shadow = policy.mode is not Mode.ENFORCE
        self.marks = policy.excess is Excess.MARK
        if policy.flow != self._flow:
            self._flow = policy.flow
            self.sample = _sample(policy.flow)

    def program(self, enforcement: Enforcement, evict: Iterable[FlowId], now_ns: int) -> None:
        """Enforce this record from now on, and remove the flows of `evict` from the sample."""
        self.bucket.program(enforcement, now_ns)
        self._adopt(enforcement)
        self.sample.evict(evict)

    def _adopt(self, enforcement: Enforcement) -> None:
        self.drop_threshold = _threshold(enforcement)
        policed = enforcement.flow_rate and enforcement.depth is not None
        self._flow_buckets = FlowBuckets(enforcement) if policed else None

    def copy(self) -> Policer:
        """A policer in the same state, to try an item on."""
        made = copy(self)
        made.bucket, made.sample = self.bucket.copy(), self.sample.copy()
        return made

    @property
    def had_traffic(self) -> bool:
        """Whether a packet has arrived since the last read."""
        return self._arrived_items > 0

    def read(self, now_ns: int) -> Measurement:
        """The counts since the last read, which begin at 0 again."""
        flows, hits = self.sample.take()
        measurement = Measurement(
            interval_ns=now_ns - self._read_ns,
            arrived_tokens=self._arrived_tokens,
            arrived_items=self._arrived_items,
            forwarded_tokens=self._forwarded_tokens,
            forwarded_items=self._forwarded_items,
            dropped_tokens=self._dropped_tokens,
            dropped_items=self._dropped_items,
            flows=flows or NO_COUNTS,
            hits=hits or NO_COUNTS,
            marked_tokens=self._marked_tokens,
            marked_items=self._marked_items,
            owed_tokens=self._owed_tokens,
        )
        self._read_ns = now_ns
        self._clear()
        return measurement

    def _clear(self) -> None:
        self._arrived_tokens = self._arrived_items = 0
        self._forwarded_tokens = self._forwarded_items = 0
        self._dropped_tokens = self._dropped_items = 0
        self._marked_tokens = self._marked_items = self._owed_tokens = 0

    def arrive(self, flow: FlowId, length: int) -> None:
        """Count a packet and sample its flow, whether it will pass or not."""
        self._arrived_tokens += length
        self._arrived_items += 1
        self._slot = self.sample.observe(flow, length)

    def refuses(self, length: int, now_ns: int, rng: Random, capable: bool = False) -> bool:
        """Check the packet that has just arrived, and count it as dropped if it may not pass.

        Args:
            length: the packet's length, bytes.
            now_ns: when the packet arrived.
            rng: source of the draws for random drop.
            capable: whether the packet is ECN-capable (ECT).
        """
        bucket = self.bucket
        bucket.settle(now_ns)
        threshold = self.drop_threshold
        self._verdict = FORWARD
        self._charged_ns = None
        if threshold and rng.getrandbits(DRAW_BITS) < threshold:
            return self.drop(length)
        if not bucket.conforms(length):
            return self.drop(length)
        buckets, slot = self._flow_buckets, self._slot
        if buckets is not None and slot is not None:
            now_ns = bucket.updated_ns
            slot.due_ns = buckets.bounded(slot.due_ns, now_ns)
            charged_ns = buckets.charged(slot.due_ns, length, now_ns)
            if bucket.spares(length, buckets.left(charged_ns, now_ns)):
                if buckets.covers(charged_ns, length, now_ns):
                    self._charged_ns = charged_ns
            elif (
                capable and self.marks and buckets.covers(charged_ns, length, now_ns, MARKED_SPANS)
            ):
                self._charged_ns = charged_ns
                self._verdict = MARK
            else:
                return self.drop(length)
        return False

    def wait_ns(self, flow: FlowId, length: int, now_ns: int) -> int | None:
        """The time until an item would pass if no other came before it.

        Nothing is counted or charged. Random drop is ignored, unless it drops all items.

        Returns:
            Nanoseconds, 0 if the item would pass now; None: it will not pass at the present rate.
        """
        bucket, buckets = self.bucket, self._flow_buckets
        bucket.settle(now_ns)
        if self.drop_threshold >> DRAW_BITS:
            return None
        left = 0
        if buckets is not None and (slot := self.sample.peek(flow)) is not None:
            now_ns = bucket.updated_ns
            due_ns = buckets.bounded(slot.due_ns, now_ns)
            left = buckets.left(buckets.charged(due_ns, length, now_ns), now_ns)
        return bucket.wait_ns(length, left)

    def tokens(self, now_ns: int) -> int:
        """The tokens in the bucket; negative in debt."""
        self.bucket.settle(now_ns)
        return self.bucket.tokens

    def fill(self, now_ns: int) -> tuple[int, int | None] | None:
        """See `TokenBucket.fill`, at this time."""
        self.bucket.settle(now_ns)
        return self.bucket.fill()

    def drop(self, length: int) -> bool:
        """Count the packet that has just arrived as dropped; return True."""
        self._dropped_tokens += length
        self._dropped_items += 1
        if self._slot is not None:
            self._slot.hits += length
        return True

    def forward(self, length: int) -> int:
        """Charge a packet that conforms, and count it as forwarded.

        Returns:
            `FORWARD` or `MARK`.
        """
        self.bucket.charge(length)
        self._forwarded_tokens += length
        self._forwarded_items += 1
        slot = self._slot
        if slot is not None and self._charged_ns is not None:
            slot.due_ns = self._charged_ns
        if self._verdict is MARK:
            self._marked_tokens += length
            self._marked_items += 1
            if slot is not None:
                slot.hits += length
        # A limit in shadow mode touches no packet.
        return FORWARD if self.shadow else self._verdict

    def fall_short(self, flow: FlowId, length: int) -> None:
        """Count an item that the limit is known to drop."""
        self.arrive(flow, length)
        self.drop(length)

    def charge(self, flow: FlowId, length: int, now_ns: int) -> None:
        """Count and charge an item that has passed already; missing tokens become debt."""
        bucket = self.bucket
        bucket.settle(now_ns)
        owed = 0 if bucket.depth is None else length - min(max(bucket.tokens, 0), length)
        self.arrive(flow, length - owed)
        self._arrived_tokens += owed
        self._owed_tokens += owed
        self._verdict = FORWARD
        self._charged_ns = None
        buckets, slot = self._flow_buckets, self._slot
        if buckets is not None and slot is not None:
            now_ns = self.bucket.updated_ns
            due_ns = buckets.bounded(slot.due_ns, now_ns)
            self._charged_ns = buckets.charged(due_ns, length, now_ns)
        self.forward(length)

    def pass_first(
        self, flow: FlowId, lengths: Iterable[int], now_ns: int
    ) -> list[tuple[int, int | None]]:
        """Forward the first of these items of one flow, which arrive together, as `police` would.

        It stops before an item that needs more than the common case: one that may be dropped, a
        draw, or an item larger than the bucket. `police` decides about that one. Each of twenty
        items takes a fifth of the time of `police` and `fill`.

        Args:
            flow: the flow of all items.
            lengths: the length of each item, at least 1.
            now_ns: when the items arrived.

        Returns:
            For each item that passes, what `fill` would return after it.
        """
        bucket, buckets = self.bucket, self._flow_buckets
        bucket.settle(now_ns)
        if self.drop_threshold or bucket.depth is None:
            return []
        slot = self.sample.observe(flow, 0)
        now_ns = bucket.updated_ns
        owed_ns = scaled = span_ns = per_ns = 0
        if buckets is not None and slot is not None:
            scaled, span_ns, per_ns = buckets.scaled, buckets.span_ns, buckets.per_ns
            owed_ns = max(buckets.bounded(slot.due_ns, now_ns) - now_ns, 0)
        passing, total, room = [], 0, bucket.room
        for length in lengths:
            charged_ns = owed_ns + (length * scaled >> SCALE_BITS)
            after = total + length
            if charged_ns > span_ns or after * NS_PER_S + charged_ns * per_ns > room:
                break
            owed_ns, total = charged_ns, after
            passing.append(length)
        self._arrived_tokens += total
        self._arrived_items += len(passing)
        self._forwarded_tokens += total
        self._forwarded_items += len(passing)
        if slot is not None:
            slot.size += total
            if buckets is not None and passing:
                slot.due_ns = now_ns + owed_ns
        return bucket.charge_each(passing)

    def police(
        self, flow: FlowId, length: int, now_ns: int, rng: Random, capable: bool = False
    ) -> int:
        """Decide like the function `police`, for one limit alone, in half the time."""
        self.arrive(flow, length)
        if self.refuses(length, now_ns, rng, capable):
            return FORWARD if self.shadow else DROP
        return self.forward(length)


def police(
    policers: Sequence[Policer],
    flow: FlowId,
    length: int,
    now_ns: int,
    rng: Random,
    *,
    capable: bool = False,
) -> int:
    """Decide about a packet of `length` bytes that falls under these limits.

    `capable` says whether the packet is ECN-capable.

    Returns:
        `DROP`, `FORWARD`, or `MARK`: forward it with a congestion mark.
    """
    for policer in policers:
        policer.arrive(flow, length)
    passing = []
    for policer in policers:
        if not policer.refuses(length, now_ns, rng, capable):
            passing.append(policer)
        elif not policer.shadow:
            return DROP
    verdict = FORWARD
    for policer in passing:
        verdict = max(verdict, policer.forward(length))
    return verdict


def _sample(flow: object) -> FlowSample:
    return SourceSample(flow) if isinstance(flow, SourcePrefix) else FlowSample()


def _threshold(enforcement: Enforcement) -> int:
    return int(enforcement.drop_probability * (1 << DRAW_BITS))
