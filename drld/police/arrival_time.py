"""When did a packet arrive? Which time a bucket charges, and up to when it has been charged.

A packet comes out of the queue with a stamp or without one. A stamp is of CLOCK_MONOTONIC if our
program set it, and of CLOCK_REALTIME if the kernel did; whose it is shows by its value, for only
one of them can be the time of a packet that has just waited in the queue:

    the queue was last seen empty  -  SLACK  <=  arrival  <=  reading

Whatever lies outside is no arrival time (a stamp of somebody else's, a clock that was set), and the
packet is charged at the reading time, like one without a stamp.

The wall clock's offset from the monotonic one is learned when a packet needs it, between two
readings of the monotonic clock that lie close together. If it has moved further than a clock that
is slewed could have, the clock was set, and what still waits may bear the old time: no wall-clock
stamp counts until the queue has been empty.

A daemon that stood still for seconds (a stopped process, a virtual machine that was moved) finds
packets that conformed when they came, and would let them go all at once, while its peers may have
counted it out. So a packet is charged `LATEST_NS` before the turn in which it is read at the
earliest: what such a pause adds to the depth is the filling of that time, and no more.

Records are put in force, and buckets settled, at the time up to which every packet has been judged
(`settled_ns`): now if none waits, else the arrival of the packet that was judged last. A bucket
that were settled at the present while packets wait in the queue would be filled to its depth once,
and not in the pauses between them: that is the burst of which stamps should relieve it.

A bucket's time never runs backward, so packets that are read out of the order of arrival (other
CPUs, other interfaces) are charged at the time of the one before. A packet without a stamp that is
read among late ones moves its bucket's time to the present.
"""

from __future__ import annotations

from collections.abc import Callable

from drld.model import NS_PER_S

SLACK_NS = NS_PER_S
"""A packet may be under way for so long between its stamp and the queue: decryption, a tunnel,
fragments that wait for each other."""

LATEST_NS = NS_PER_S // 4
"""A packet is charged so long before it is read at the earliest: longer than a scheduler keeps a
daemon waiting."""

_US_PER_S, _NS_PER_US = 1_000_000, 1000
_STEP_NS = NS_PER_S // 1000
_SLEW = 8
"""Clock daemons slew by up to a twelfth of the time."""
_LEARN_EVERY_NS = NS_PER_S // 1000
_READINGS = 3
_CLOSE_NS = 50_000


class ArrivalTimes:
    """The arrival times of one queue's packets."""

    __slots__ = (
        "_clock",
        "_distrusted",
        "_empty_ns",
        "_floor_ns",
        "_latest_ns",
        "_learned_ns",
        "_now_ns",
        "_offset_ns",
        "_oldest_ns",
        "_stamped_before",
        "_wall",
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
        self._wall = wall
        self.ebpf = 0
        """Packets charged at the time that our program stamped."""
        self.kernel = 0
        """At the time that the kernel stamped."""
        self.read = 0
        """At the time when they were read."""
        self._now_ns = self._latest_ns = self._empty_ns = clock()
        self.emptied(self._now_ns)
        self._floor_ns = 0
        """Nothing is charged at an earlier time."""
        self._offset_ns = 0
        self._learned_ns: int | None = None
        self._learn()

    def arrival_ns(self, stamp_s: float) -> int:
        """When the packet that has just been read arrived; 0.0 is no stamp."""
        if not stamp_s:
            return self._reading_ns()
        stamp_ns = int(stamp_s * _US_PER_S + 0.5) * _NS_PER_US  # what the queue tells
        if stamp_ns > self._now_ns:
            self._now_ns = self._clock()
        if not self._oldest_ns <= stamp_ns <= self._now_ns:
            return self._by_wall_clock(stamp_ns)
        self.ebpf += 1
        self._latest_ns = max(stamp_ns, self._floor_ns)
        return self._latest_ns

    def _by_wall_clock(self, stamp_ns: int) -> int:
        self._now_ns = self._clock()
        if self._learned_ns is None or self._now_ns - self._learned_ns >= _LEARN_EVERY_NS:
            self._learn()
        arrival_ns = stamp_ns - self._offset_ns
        if (
            self._distrusted
            or self._learned_ns is None
            or not self._oldest_ns <= arrival_ns <= self._now_ns + _CLOSE_NS
        ):
            return self._reading_ns()
        self.kernel += 1
        arrival_ns = min(arrival_ns, self._now_ns)  # the two clocks are not read at once
        self._latest_ns = max(arrival_ns, self._floor_ns)
        return self._latest_ns

    def _learn(self) -> None:
        """Read both clocks; whoever is interrupted between them tries again."""
        for _ in range(_READINGS):
            before_ns = self._clock()
            wall_ns = self._wall()
            after_ns = self._clock()
            if after_ns - before_ns <= _CLOSE_NS:
                break
        else:
            return
        offset_ns = wall_ns - before_ns
        if self._learned_ns is not None:
            slewed_ns = (before_ns - self._learned_ns) // _SLEW
            self._distrusted |= abs(offset_ns - self._offset_ns) > _STEP_NS + slewed_ns
        self._offset_ns = offset_ns
        self._learned_ns = before_ns

    def _reading_ns(self) -> int:
        self.read += 1
        self._now_ns = self._clock()
        if self.ebpf + self.kernel == self._stamped_before:
            # Nothing but packets without a stamp: they are judged in the present.
            self._latest_ns = self._now_ns
        return self._now_ns

    def turn(self, now_ns: int) -> None:
        """Packets are read from now on; how long they have waited is known by this time."""
        self._floor_ns = now_ns - LATEST_NS

    def emptied(self, now_ns: int) -> None:
        """Every packet that was in the queue at this time has been judged."""
        self._empty_ns = max(self._empty_ns, now_ns)
        self._oldest_ns = now_ns - SLACK_NS
        self._stamped_before = self.ebpf + self.kernel
        self._distrusted = False

    def settled_ns(self) -> int:
        """The time up to which every packet has been judged."""
        return max(self._latest_ns, self._empty_ns)
