"""Converts the kernel's wall-clock stamps to monotonic time.

The wall clock's offset from the monotonic clock is measured when a stamp needs it, between two
close readings of the monotonic clock. If the offset moved further than slewing can move it, the
clock was set. Packets that wait in the queue may then have stamps of the old time, so no stamp
counts until all of them have been read (`trust`).
"""

from __future__ import annotations

from collections.abc import Callable

from drld.model import NS_PER_S

CLOSE_NS = 50_000
"""The longest time between two readings that were not interrupted, ns."""

_STEP_NS = NS_PER_S // 1000
"""The clock was set if its offset changed by more than this beyond the slewing, ns."""
_SLEW = 8
"""The offset may slew by this part of the time, an eighth; clock daemons slew by a twelfth."""
_LEARN_EVERY_NS = NS_PER_S // 1000
"""The age at which the offset is measured again, ns: within it, slewing is below 0.1 ms."""
_READINGS = 3
"""Attempts at a measurement: one may be interrupted, hardly ever three in a row."""


class WallClock:
    """The offset between the two clocks."""

    __slots__ = ("_clock", "_distrusted", "_learned_ns", "_offset_ns", "_wall")

    def __init__(self, clock: Callable[[], int], wall: Callable[[], int]) -> None:
        """Measure the offset.

        Args:
            clock: monotonic time, ns.
            wall: CLOCK_REALTIME, ns.
        """
        self._clock = clock
        self._wall = wall
        self._distrusted = False
        self._offset_ns = 0
        self._learned_ns: int | None = None
        self._learn()

    def monotonic_ns(self, stamp_ns: int, now_ns: int) -> int | None:
        """The monotonic time of a stamp; None: the clock was set, or its offset is not known."""
        if self._learned_ns is None or now_ns - self._learned_ns >= _LEARN_EVERY_NS:
            self._learn()
        if self._distrusted or self._learned_ns is None:
            return None
        return stamp_ns - self._offset_ns

    def trust(self) -> None:
        """Trust stamps again: every waiting packet was stamped after this call."""
        self._distrusted = False

    def _learn(self) -> None:
        """Measure the offset of the clocks; try again if interrupted between the readings."""
        for _ in range(_READINGS):
            before_ns = self._clock()
            wall_ns = self._wall()
            after_ns = self._clock()
            if after_ns - before_ns <= CLOSE_NS:
                break
        else:
            return
        offset_ns = wall_ns - before_ns
        if self._learned_ns is not None:
            slewed_ns = (before_ns - self._learned_ns) // _SLEW
            self._distrusted |= abs(offset_ns - self._offset_ns) > _STEP_NS + slewed_ns
        self._offset_ns = offset_ns
        self._learned_ns = before_ns
