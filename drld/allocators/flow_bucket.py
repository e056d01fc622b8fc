"""A token bucket for each flow, in one number: fair dropping's share of a packet's work.

The limit's bucket is fair to flows that slow down alike when they lose packets, and to no others.
So each flow of a limit's sample has a bucket of its own, filled at the level that no flow may
exceed while others want more (`Enforcement.flow_rate`). A packet passes only if it leaves the part
of the reserve that its flow has used of its own bucket: all of the reserve if that bucket does not
cover the packet, nothing if it is full. So what nobody else wants is not lost, flows below the
level find tokens, and of two flows below it the one that sends less finds them first.

All buckets of a limit have the same rate and depth, so a bucket is one number, its virtual
scheduling time (the GCRA of ITU-T I.371; a phantom queue): the time `due` at which it is full
again. With s nanoseconds a byte and a span T, the time in which an empty bucket fills,

    a packet of b bytes at time t:  due' = max(due, t) + b s
    covered, where                  due' - t <= max(T, b s)

    leaves in the limit's bucket    (reserve / T) min(due' - t, T)

`max` lets a packet larger than the whole bucket pass when the bucket is full. A new flow has
due = 0: a full bucket. A new rate changes what is owed in proportion.

Integers only, so that the BPF program gives the same verdicts: s is scaled by 2**16 and cut off
(at 400 Gbit/s an error below 0.1 %), and at most 2**44 (3.8 bytes/s), so that no product leaves
64 bits.
"""

from __future__ import annotations

from drld.model import NS_PER_S, Enforcement

SCALE_BITS = 16
MAX_SCALED = 1 << 44
MAX_SPAN_NS = 1 << 61
MAX_TOKENS = 1 << 62
"""Of a reserve: more than the deepest bucket has, and with a packet's below 2**63."""
MARKED_SPANS = 2
"""Depths that an ECN-capable flow may owe: it is marked beyond the first, refused beyond this."""


class FlowBuckets:
    """Rate and depth of the flow buckets of one limit."""

    __slots__ = ("per_ns", "scaled", "span_ns")

    def __init__(self, enforcement: Enforcement) -> None:
        rate = enforcement.flow_rate
        self.scaled = min((NS_PER_S << SCALE_BITS) // rate, MAX_SCALED) if rate else 0
        """Nanoseconds a byte, times 2**16; 0: flows are not policed."""
        span_ns = enforcement.flow_depth * NS_PER_S // rate if rate else 0
        self.span_ns = min(span_ns, MAX_SPAN_NS)
        reserve = min(enforcement.reserve * NS_PER_S, MAX_TOKENS)
        self.per_ns = reserve // self.span_ns if self.span_ns else 0
        """Tokens to leave for each nanosecond owed."""

    def charged(self, due_ns: int, length: int, now_ns: int) -> int:
        """`due` of a flow's bucket after a packet of `length` bytes."""
        start_ns = due_ns if due_ns > now_ns else now_ns
        return start_ns + (length * self.scaled >> SCALE_BITS)

    def left(self, charged_ns: int, now_ns: int) -> int:
        """Tokens (bytes x 10**-9) of the limit's bucket that a packet has to leave."""
        owed_ns = charged_ns - now_ns
        return (owed_ns if owed_ns < self.span_ns else self.span_ns) * self.per_ns

    def covers(self, charged_ns: int, length: int, now_ns: int, spans: int = 1) -> bool:
        """Whether the bucket, if it were so many depths deep, would cover a packet.

        `charged_ns` is what `charged` says of the packet.
        """
        owed_ns = charged_ns - now_ns
        return owed_ns <= spans * self.span_ns or owed_ns <= length * self.scaled >> SCALE_BITS
