"""A token bucket for each flow, in one number: the part of `fair` that runs for each packet.

One bucket for all is fair only to flows that slow down alike when they lose packets. So each
sampled flow of a limit has a bucket of its own. It fills at the level, the rate that no flow may
exceed while others want more (`Enforcement.flow_rate`). A packet must leave a part of the `reserve`
in the limit's bucket. It is the part that its flow has used of its own bucket, this packet
included. If the flow's bucket does not cover the packet, the part is the whole reserve. A packet
that meets a full bucket of the limit passes as well. So a rate that no other flow wants is not
lost, and flows below the level find tokens. Of two such flows, the one that owes less finds tokens
first.

All flow buckets of a limit have the same rate and depth. So a bucket is one number, its virtual
scheduling time (the GCRA of ITU-T I.371; a phantom queue): the time `due` at which it is full
again. A byte takes s nanoseconds, and an empty bucket fills in the span T:

    a packet of b bytes at time t:  due' = max(due, t) + b s
    covered, where                  due' - t <= max(T, b s)

    leaves in the limit's bucket    (reserve / T) min(due' - t, T)

`max` lets a packet larger than the whole bucket pass when the bucket is full. A new flow has
due = 0: a full bucket.

A debt is a time, so a new rate changes the bytes that a flow owes, in proportion. At a lower rate
the flow owes fewer bytes, and the same part of its bucket. At a higher rate it would owe more bytes
than it ever got. So a packet finds at most a debt that is possible at today's rate: `MARKED_SPANS`
spans and a packet of 64 KiB (`most_ns`). This does not shorten a debt that arose at the same rate,
except that of a longer packet (BIG TCP) in a shallow bucket.

All numbers are integers, so that the BPF program gives the same verdicts. s is scaled by 2**16 and
rounded down: at 400 Gbit/s an error below 0.1 %. It is at most 2**44 (3.7 bytes/s), so that every
product fits into 64 bits. The tokens for each nanosecond owed are rounded down, too.
"""

from __future__ import annotations

from drld.model import NS_PER_S, Enforcement

SCALE_BITS = 16
MAX_SCALED = 1 << 44
MAX_SPAN_NS = 1 << 61
MAX_TOKENS = 1 << 62
"""Largest reserve: more than the deepest bucket holds, and with a packet's cost below 2**63."""
MARKED_SPANS = 2
"""Depths that an ECN-capable flow may owe. It is marked beyond one depth, refused beyond this."""


class FlowBuckets:
    """Rate and depth of the flow buckets of one limit."""

    __slots__ = ("most_ns", "per_ns", "scaled", "span_ns")

    def __init__(self, enforcement: Enforcement) -> None:
        rate = enforcement.flow_rate
        self.scaled = min((NS_PER_S << SCALE_BITS) // rate, MAX_SCALED) if rate else 0
        """Nanoseconds a byte, times 2**16; 0: flows are not policed."""
        span_ns = enforcement.flow_depth * NS_PER_S // rate if rate else 0
        self.span_ns = min(span_ns, MAX_SPAN_NS)
        self.most_ns = MARKED_SPANS * self.span_ns + self.scaled
        """The largest debt before a packet, ns. `scaled` is the time of 64 KiB, 2**16 bytes."""
        reserve = min(enforcement.reserve * NS_PER_S, MAX_TOKENS)
        self.per_ns = reserve // self.span_ns if self.span_ns else 0
        """Tokens to leave for each nanosecond owed."""

    def bounded(self, due_ns: int, now_ns: int) -> int:
        """The `due` of a flow's bucket at this rate, ns."""
        latest_ns = now_ns + self.most_ns
        return due_ns if due_ns < latest_ns else latest_ns

    def charged(self, due_ns: int, length: int, now_ns: int) -> int:
        """The `due` of a flow's bucket after a packet of `length` bytes, ns."""
        start_ns = due_ns if due_ns > now_ns else now_ns
        return start_ns + (length * self.scaled >> SCALE_BITS)

    def left(self, charged_ns: int, now_ns: int) -> int:
        """Tokens (bytes x 10**-9) of the limit's bucket that a packet has to leave."""
        owed_ns = charged_ns - now_ns
        return (owed_ns if owed_ns < self.span_ns else self.span_ns) * self.per_ns

    def covers(self, charged_ns: int, length: int, now_ns: int, spans: int = 1) -> bool:
        """Whether a flow's bucket of `spans` depths would cover a packet.

        Args:
            charged_ns: the result of `charged` for the packet.
            length: the packet's length, bytes.
            now_ns: the time up to which the limit's bucket is settled.
            spans: depth of the flow's bucket, in configured depths.
        """
        owed_ns = charged_ns - now_ns
        return owed_ns <= spans * self.span_ns or owed_ns <= length * self.scaled >> SCALE_BITS
