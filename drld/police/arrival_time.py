"""Arrival times: the time at which a packet is charged, and the time up to which all are charged.

A packet comes out of the queue with or without a stamp. drld's BPF program stamps CLOCK_MONOTONIC,
and the kernel CLOCK_REALTIME. The value shows which clock it is of, because the packet has just
waited in the queue:

    the queue was last seen empty  -  SLACK  <=  arrival  <=  reading

A stamp outside these bounds on both clocks is not an arrival time: another program wrote it, or a
clock was set. The packet is then charged at the reading time, like a packet without a stamp.

If the wall clock was set (`drld.police.wall_clock`), no wall-clock stamp counts until the queue has
been empty.

A daemon that stood still for seconds (a stopped process, a migrated virtual machine) finds packets
that conformed when they arrived. It would forward them all at once, while its peers may have taken
its share out of the limit. So no packet is charged earlier than `LATEST_NS` before the turn that
reads it. A pause then adds at most the filling of that time to the depth.

Records take effect, and buckets are settled, at the time up to which every packet has been judged
(`settled_ns`). That is now if no packet waits, else the arrival time of the packet judged last.
Settling a bucket at the current time while older packets wait would cap its tokens too early. It
would drop bursts that conformed on arrival; stamps prevent that.

A bucket's time never runs backward. So packets read out of order (from other CPUs or interfaces)
are charged at the time of the packet before. A packet without a stamp among late ones moves its
bucket's time to the present.
"""

from __future__ import annotations

from collections.abc import Callable

from drld.model import NS_PER_S
from drld.police.wall_clock import CLOSE_NS, WallClock

SLACK_NS = NS_PER_S
"""Longest time from a packet's stamp to the queue: decryption, a tunnel, waiting fragments."""

LATEST_NS = NS_PER_S // 4
"""Longest time from the charge of a packet to the turn that reads it: longer than a scheduler
makes a daemon wait."""

_US_PER_S, _NS_PER_US = 1_000_000, 1000


class ArrivalTimes:
    """The arrival times of one queue's packets."""

    __slots__ = (
        "_clock",
        "_empty_ns",
        "_floor_ns",
        "_latest_ns",
        "_now_ns",
        "_oldest_ns",
        "_stamped_before",
        "_wall_clock",
        "ebpf",
        "kernel",
        "read",
    )

    def __init__(self, clock: Callable[[], int], wall: Callable[[], int]) -> None:
        """Begin with an empty queue.

        Args:
            clock: monotonic time, ns.
            wall: CLOCK_REALTIME, ns.
        """
        self._clock = clock
        self.ebpf = 0
        """Packets charged at the stamp of drld's BPF program."""
        self.kernel = 0
        """Packets charged at the kernel's stamp."""
        self.read = 0
        """Packets charged at the time of reading."""
        self._now_ns = self._latest_ns = self._empty_ns = clock()
        self._wall_clock = WallClock(clock, wall)
        self.emptied(self._now_ns)
        self._floor_ns = 0
        """The earliest time at which a packet is charged."""

    def arrival_ns(self, stamp_s: float) -> int:
        """The arrival time of the packet that has just been read; `stamp_s` 0.0: no stamp."""
        if not stamp_s:
            return self._reading_ns()
        stamp_ns = int(stamp_s * _US_PER_S + 0.5) * _NS_PER_US  # the queue counts microseconds
        if stamp_ns > self._now_ns:
            self._now_ns = self._clock()
        if not self._oldest_ns <= stamp_ns <= self._now_ns:
            return self._by_wall_clock(stamp_ns)
        self.ebpf += 1
        self._latest_ns = max(stamp_ns, self._floor_ns)
        return self._latest_ns

    def _by_wall_clock(self, stamp_ns: int) -> int:
        self._now_ns = self._clock()
        arrival_ns = self._wall_clock.monotonic_ns(stamp_ns, self._now_ns)
        if arrival_ns is None or not self._oldest_ns <= arrival_ns <= self._now_ns + CLOSE_NS:
            return self._reading_ns()
        self.kernel += 1
        arrival_ns = min(arrival_ns, self._now_ns)  # the two clocks are read one after the other
        self._latest_ns = max(arrival_ns, self._floor_ns)
        return self._latest_ns

    def _reading_ns(self) -> int:
        self.read += 1
        self._now_ns = self._clock()
        if self.ebpf + self.kernel == self._stamped_before:
            # All packets since the queue was empty lack a stamp: the present is settled.
            self._latest_ns = self._now_ns
        return self._now_ns

    def turn(self, now_ns: int) -> None:
        """Begin a turn: packets are read from now on, and charged at most `LATEST_NS` earlier."""
        self._floor_ns = now_ns - LATEST_NS

    def emptied(self, now_ns: int) -> None:
        """The queue was empty at this time: every earlier packet has been judged."""
        self._empty_ns = max(self._empty_ns, now_ns)
        self._oldest_ns = now_ns - SLACK_NS
        self._stamped_before = self.ebpf + self.kernel
        self._wall_clock.trust()

    def settled_ns(self) -> int:
        """The time up to which every packet has been judged."""
        return max(self._latest_ns, self._empty_ns)
