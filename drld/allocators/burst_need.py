"""The tokens that traffic with pauses needs at once: the peak of the last seconds. Pure.

Bursts with pauses between them find only the tokens that their limiter's bucket holds. An idle
limiter's bucket is shallow, because a whole fleet may wake up together. A limiter whose traffic
came in bursts a moment ago needs a deeper one: as deep as its largest burst, less what the bucket
was filled with meanwhile. The peak is held for one to two windows of `HOLD_NS`.

A burst begins after an interval in which less arrived than the bucket was filled with. So traffic
above the limiter's rate is one burst, when it begins, and needs no deep bucket while it lasts.
"""

from __future__ import annotations

from drld.model import NS_PER_S

HOLD_NS = 4 * NS_PER_S
"""Bursts further apart than this, or twice this, count as the first after an idle time."""


class BurstNeed:
    """The largest need of the present window and of the one before it."""

    __slots__ = ("_age_ns", "_before", "_paused", "_present")

    def __init__(self) -> None:
        self._present = self._before = 0.0
        """Largest need of a window, tokens."""
        self._age_ns = 0
        """Age of the present window, ns."""
        self._paused = False
        """Whether no more arrived in the last interval than the bucket was filled with."""

    def update(self, arrived: float, filled: float, interval_ns: int) -> float:
        """Add the tokens that arrived in an interval, and those that filled the bucket.

        Returns:
            The largest need that is remembered, tokens.
        """
        if self._age_ns >= HOLD_NS:
            self._before, self._present, self._age_ns = self._present, 0.0, 0
        self._age_ns += interval_ns
        if self._paused:
            self._present = max(self._present, arrived - filled)
        self._paused = arrived <= filled
        return self.peak

    @property
    def peak(self) -> float:
        """The largest need that is remembered, tokens."""
        return max(self._present, self._before)
