"""The arithmetic of an emulated link: due times, losses and their exactness.

Pure: time and randomness are arguments. `testbed.delayline` moves the packets.

A link has one delay for all packets, so it is a FIFO: packets leave in order, each `delay_ns` after
its *arrival*. Reading a packet late does not add to its delay; releasing it late does, and this
error is counted. A loss is drawn when the packet arrives, and carried out when it is due.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

NS_PER_US = 1_000
LATE_NS = 1_000_000
"""A packet released later than this after its due time counts as late."""
MAX_LATE_SHARE = 0.01
"""A run with a larger share of late packets does not count (p99 <= 1 ms)."""
MAX_ERROR_NS = 50_000_000
"""A run with one packet later than this does not count: it is more than a round trip."""

_BUCKET_NS = 10 * NS_PER_US
_BUCKETS = 10_000


class Release(NamedTuple):
    """A decision on packets of one queue: accept all up to an id, or drop that one."""

    through: int
    accept: bool


class DelayedLink:
    """One direction of one emulated link."""

    def __init__(self, delay_ns: int, loss: float, rng: Random) -> None:
        """`loss` is the probability that a packet is lost, drawn from `rng` for each."""
        self.delay_ns = delay_ns
        self.loss = loss
        self._rng = rng
        self._waiting: deque[tuple[int, int, bool]] = deque()
        self._last_due = 0
        self.arrived = 0
        self.lost = 0

    @property
    def next_due(self) -> int | None:
        """Time at which the oldest waiting packet is due, ns; None: no packet waits."""
        return self._waiting[0][0] if self._waiting else None

    def arrive(self, packet: int, arrived_ns: int) -> None:
        """Add a packet, by its id in the queue."""
        lost = self.loss > 0 and self._rng.random() < self.loss
        # Stamps of two processors may be microseconds out of order; packets keep their order.
        self._last_due = max(self._last_due, arrived_ns + self.delay_ns)
        self._waiting.append((self._last_due, packet, lost))
        self.arrived += 1
        self.lost += lost

    def release(self, now_ns: int, most: int) -> tuple[list[Release], list[int]]:
        """Release at most `most` packets that are due; return the decisions and the due times."""
        actions: list[Release] = []
        dues: list[int] = []
        waiting = self._waiting
        while waiting and waiting[0][0] <= now_ns and len(dues) < most:
            due, packet, lost = waiting.popleft()
            dues.append(due)
            if not lost and actions and actions[-1].accept:
                actions[-1] = Release(packet, True)
            else:
                actions.append(Release(packet, not lost))
        return actions, dues


@dataclass(frozen=True, slots=True)
class LinkReport:
    """A delay line's report after a run; times in microseconds."""

    packets: int
    lost: int
    """Packets dropped on purpose, as the links' loss says."""
    mean_us: float
    p99_us: float
    """Upper edge of a bucket of 10 us."""
    worst_us: float
    late_share: float
    """Share of the packets released more than 1 ms after they were due."""
    stamped_share: float
    """Share of the packets whose arrival time came from the kernel."""
    overflow: int
    """Packets that the kernel dropped because the delay line read too late."""

    def problem(self) -> str | None:
        """The reason why the run does not count, or None."""
        if self.overflow:
            return f"the delay line was overrun: the kernel dropped {self.overflow} packets"
        if self.late_share > MAX_LATE_SHARE:
            return (
                f"the delay line could not keep up: {self.late_share:.1%} of its packets left "
                f"over 1 ms late (at most {MAX_LATE_SHARE:.0%}; p99 {self.p99_us:.0f} us)"
            )
        if self.worst_us * NS_PER_US > MAX_ERROR_NS:
            return (
                f"the delay line stalled: a packet left {self.worst_us / 1e3:.1f} ms late "
                f"(at most {MAX_ERROR_NS / 1e6:.0f} ms)"
            )
        return None


class ErrorAccount:
    """Distribution of the error (release less due time), in bounded memory."""

    def __init__(self) -> None:
        self._counts = array("Q", bytes(8 * (_BUCKETS + 1)))
        self.packets = 0
        self._sum_ns = 0
        self._worst_ns = 0
        self._late = 0

    def add(self, error_ns: int) -> None:
        """Count one packet."""
        self._counts[min(max(error_ns, 0) // _BUCKET_NS, _BUCKETS)] += 1
        self.packets += 1
        self._sum_ns += error_ns
        self._worst_ns = max(self._worst_ns, error_ns)
        self._late += error_ns > LATE_NS

    def percentile_us(self, share: float) -> float:
        """Upper edge of the bucket of this quantile; the largest error if it is beyond all."""
        wanted = share * self.packets
        seen = 0
        for index, count in enumerate(self._counts[:_BUCKETS]):
            seen += count
            if count and seen >= wanted:
                return min((index + 1) * _BUCKET_NS, self._worst_ns) / NS_PER_US
        return self._worst_ns / NS_PER_US

    def report(self, *, lost: int, stamped: int, overflow: int) -> LinkReport:
        """A report of all counts so far, and of the given ones."""
        packets = max(self.packets, 1)
        return LinkReport(
            packets=self.packets,
            lost=lost,
            mean_us=self._sum_ns / packets / NS_PER_US,
            p99_us=self.percentile_us(0.99),
            worst_us=self._worst_ns / NS_PER_US,
            late_share=self._late / packets,
            stamped_share=min(stamped / packets, 1.0),
            overflow=overflow,
        )
