"""The tokens that traffic with pauses needs at once: the largest burst that came twice. Pure.

Bursts with pauses between them find only the tokens that their limiter's bucket holds. An idle
limiter's bucket is shallow, because a whole fleet may wake up together. A limiter whose traffic
came in bursts a moment ago needs a deeper one: as deep as its bursts, less what the bucket was
filled with meanwhile.

One burst is no pattern: a flow that starts sends its initial window at once, and never again. If
it counted, a fleet of TCP flows that wakes up together would have deep buckets at every limiter.
So a burst counts as far as an earlier one was as large. Bursts are remembered for one to two
windows of `HOLD_NS`.

A burst begins after an interval in which no more arrived than the bucket was filled with. So
traffic above the limiter's rate is one burst, when it begins, and needs no deep bucket while it
lasts.
"""

from __future__ import annotations

from drld.model import NS_PER_S

HOLD_NS = 4 * NS_PER_S
"""Bursts further apart than this, or twice this, count as the first after an idle time."""


class BurstNeed:
    """The bursts of the present window and of the one before it."""

    __slots__ = ("_age_ns", "_before", "_paused", "_present")

    def __init__(self) -> None:
        self._present = self._before = (0.0, 0.0)
        """A window's largest burst, and the largest that came twice, tokens."""
        self._age_ns = 0
        """Age of the present window, ns."""
        self._paused = False
        """Whether no more arrived in the last interval than the bucket was filled with."""

    @property
    def settled(self) -> bool:
        """Whether no burst is remembered."""
        return not self._present[0] and not self._before[0]

    def update(self, arrived: float, filled: float, interval_ns: int) -> float:
        """Take in the bytes that arrived in an interval, and those that the bucket was filled with.

        Returns:
            The largest need that is remembered, tokens.
        """
        if self._age_ns >= HOLD_NS:
            self._before, self._present, self._age_ns = self._present, (0.0, 0.0), 0
        self._age_ns += interval_ns
        if self._paused:
            burst = arrived - filled
            largest, twice = self._present
            earlier = max(largest, self._before[0])
            self._present = max(largest, burst), max(twice, min(burst, earlier))
        self._paused = arrived <= filled
        return max(self._present[1], self._before[1])
