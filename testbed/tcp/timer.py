"""A timer that can be set again at almost no cost, as coarse as Linux's.

Linux's wheel (kernel/time/timer.c) counts in jiffies and rounds up, so that a timer never fires
early. It rounds to one jiffy up to 63 jiffies ahead, to eight up to 8 x 63, to 64 beyond. Delays
are whole jiffies. There are 250 of them a second here, as most distributions have them.
"""

from __future__ import annotations

from collections.abc import Callable

from testbed.tcp.clock import Clock

JIFFY_NS = 4_000_000

_LEVEL = 63
"""Jiffies ahead that one level of the wheel reaches, in units of its granularity."""
_SHIFT = 3
"""Each level is 2**3 times as coarse as the one before."""


def expiry_ns(when_ns: int, now_ns: int, phase_ns: int = 0) -> int:
    """The time at which a timer set to `when_ns` fires; jiffies begin at `phase_ns`."""
    ahead = whole_jiffies_ns(when_ns - now_ns)
    granule = JIFFY_NS
    while ahead >= _LEVEL * granule:
        granule <<= _SHIFT
    # Strictly later: the jiffy that has begun does not count.
    return ((now_ns + ahead - phase_ns) // granule + 1) * granule + phase_ns


def whole_jiffies_ns(delay_ns: int) -> int:
    """A delay in whole jiffies, rounded up: usecs_to_jiffies()."""
    return -(-delay_ns // JIFFY_NS) * JIFFY_NS


class Timer:
    """Calls `fire` when it expires, unless it was stopped or set again before."""

    __slots__ = ("_clock", "_due_ns", "_event_ns", "_fire", "_phase_ns")

    def __init__(self, clock: Clock, fire: Callable[[], None], phase_ns: int = 0) -> None:
        self._clock = clock
        self._fire = fire
        self._phase_ns = phase_ns
        self._due_ns: int | None = None
        self._event_ns: int | None = None
        """Time of the earliest event; all other events are ignored."""

    @property
    def running(self) -> bool:
        """Whether the timer will fire."""
        return self._due_ns is not None

    def set(self, delay_ns: int) -> None:
        """Fire after this time, and not at the earlier setting."""
        now_ns = self._clock.now_ns
        due_ns = expiry_ns(now_ns + delay_ns, now_ns, self._phase_ns)
        self._due_ns = due_ns
        # An event that comes too early sets another one: cheaper than one for each change.
        if self._event_ns is None or due_ns < self._event_ns:
            self._event_ns = due_ns
            self._clock.at(due_ns, self._expire, due_ns)

    def stop(self) -> None:
        """Stop the timer."""
        self._due_ns = None

    def _expire(self, event_ns: int) -> None:
        if event_ns != self._event_ns:
            return
        self._event_ns = None
        due_ns = self._due_ns
        if due_ns is None:
            return
        if due_ns > event_ns:
            self._event_ns = due_ns
            self._clock.at(due_ns, self._expire, due_ns)
            return
        self._due_ns = None
        self._fire()
