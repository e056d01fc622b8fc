"""Spaces the segments of a paced sender: each leaves a gap after the one before, or later."""

from __future__ import annotations

from collections.abc import Callable

from testbed.tcp.clock import Clock


class Pacer:
    """Decides whether a segment may leave, and calls `resume` when the next one may."""

    __slots__ = ("_clock", "_closed", "_free_ns", "_resume", "_waiting")

    def __init__(self, clock: Clock, resume: Callable[[], None]) -> None:
        self._clock = clock
        self._resume = resume
        self._free_ns = 0
        """Earliest time of the next segment."""
        self._waiting = False
        self._closed = False

    def must_wait(self) -> bool:
        """Whether it is too early for a segment; if so, `resume` is called in time."""
        if self._clock.now_ns >= self._free_ns:
            return False
        if not self._waiting:
            self._waiting = True
            self._clock.at(self._free_ns, self._expire)
        return True

    def sent(self, gap_ns: int) -> None:
        """Record that a segment leaves now."""
        self._free_ns = max(self._free_ns, self._clock.now_ns) + gap_ns

    def close(self) -> None:
        """Stop: do not call `resume` any more."""
        self._closed = True

    def _expire(self, _: object) -> None:
        self._waiting = False
        if not self._closed:
            self._resume()
