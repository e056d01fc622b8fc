"""What happens to one packet, in pure Python: count, sample, drop at random, police.

A packet falls under an ordered list of limits (customer, then site). All are checked in that
order, random drop before the bucket within each; the first enforcing limit that refuses ends the
check and counts the drop. Only a packet that none refuses is charged, and then every limit that
it conforms to is charged: so all pay, or none. A limit in shadow mode is checked and charged
like any other and counts what it would have dropped, but refuses nothing.

`drld.capture.nfqueue` runs this for each packet; the kernel datapath repeats it in C.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from drld.allocators.token_bucket import TokenBucket
from drld.estimate.flows import FlowSample
from drld.model import Enforcement, FlowId, Measurement
from drld.spec import LimitSpec, Mode

DRAW_BITS = 32
"""A packet is dropped at random when a draw of so many bits is below the scaled probability."""


class Policer:
    """One limit's counters, flow sample, random drop and token bucket."""

    __slots__ = (
        "_arrived_bytes",
        "_arrived_packets",
        "_dropped_bytes",
        "_dropped_packets",
        "_forwarded_bytes",
        "_forwarded_packets",
        "_read_ns",
        "bucket",
        "drop_threshold",
        "sample",
        "shadow",
    )

    def __init__(self, limit: LimitSpec, enforcement: Enforcement, now_ns: int) -> None:
        self.sample = FlowSample()
        self.bucket = TokenBucket(enforcement, now_ns)
        self.drop_threshold = _threshold(enforcement)
        self._read_ns = now_ns
        self._clear()
        self.reconfigure(limit)

    def reconfigure(self, limit: LimitSpec) -> None:
        """Take over a changed configuration of the same limit; counters and tokens stay."""
        self.shadow = limit.mode is Mode.SHADOW

    def program(self, enforcement: Enforcement, evict: Iterable[FlowId], now_ns: int) -> None:
        """Enforce this record from now on, and drop the named flows from the sample."""
        self.bucket.program(enforcement, now_ns)
        self.drop_threshold = _threshold(enforcement)
        self.sample.evict(evict)

    @property
    def stirred(self) -> bool:
        """Whether a packet has arrived since the last read."""
        return self._arrived_packets > 0

    def read(self, now_ns: int) -> Measurement:
        """What was counted since the last read."""
        measurement = Measurement(
            interval_ns=now_ns - self._read_ns,
            arrived_bytes=self._arrived_bytes,
            arrived_packets=self._arrived_packets,
            forwarded_bytes=self._forwarded_bytes,
            forwarded_packets=self._forwarded_packets,
            dropped_bytes=self._dropped_bytes,
            dropped_packets=self._dropped_packets,
            flows=self.sample.take(),
        )
        self._read_ns = now_ns
        self._clear()
        return measurement

    def _clear(self) -> None:
        self._arrived_bytes = self._arrived_packets = 0
        self._forwarded_bytes = self._forwarded_packets = 0
        self._dropped_bytes = self._dropped_packets = 0

    def arrive(self, flow: FlowId, length: int) -> None:
        """Count a packet and sample its flow, whatever becomes of it."""
        self._arrived_bytes += length
        self._arrived_packets += 1
        self.sample.observe(flow, length)

    def refuses(self, length: int, now_ns: int, rng: Random) -> bool:
        """Check a packet, and count it as dropped if it may not pass."""
        bucket = self.bucket
        bucket.settle(now_ns)
        threshold = self.drop_threshold
        if (threshold and rng.getrandbits(DRAW_BITS) < threshold) or not bucket.conforms(length):
            self._dropped_bytes += length
            self._dropped_packets += 1
            return True
        return False

    def forward(self, length: int) -> None:
        """Charge a packet that conforms and count it as forwarded."""
        self.bucket.charge(length)
        self._forwarded_bytes += length
        self._forwarded_packets += 1

    def police(self, flow: FlowId, length: int, now_ns: int, rng: Random) -> bool:
        """What `police` does where this limit is the only one, in half the time."""
        self.arrive(flow, length)
        if self.refuses(length, now_ns, rng):
            return self.shadow
        self.forward(length)
        return True


def police(
    policers: Sequence[Policer], flow: FlowId, length: int, now_ns: int, rng: Random
) -> bool:
    """Decide about a packet of `length` bytes that falls under these limits.

    Returns:
        True to forward it, False to drop it.
    """
    for policer in policers:
        policer.arrive(flow, length)
    passing = []
    for policer in policers:
        if not policer.refuses(length, now_ns, rng):
            passing.append(policer)
        elif not policer.shadow:
            return False
    for policer in passing:
        policer.forward(length)
    return True


def _threshold(enforcement: Enforcement) -> int:
    return int(enforcement.drop_probability * (1 << DRAW_BITS))
