"""The rate and the burst that the traffic of a limit would have needed, in bounded memory. Pure.

Theory: the burstiness curve of traffic (Cruz, "A calculus for network delay", 1991). A bucket of
rate r drops nothing if its depth is at least

    b(r) = max over all s <= t of  A(s, t) - r (t - s)          A: tokens that arrived

which is the largest backlog of a queue that is served at r. It is kept for the rates
r = least x 2**(i / STEPS): a backlog u and a need b each.

Counters are read once an interval (a tick), so the times of the tokens within it are not known. The
worst case is assumed: the tokens of one interval came at its end, those of the next at its begin.

    need b <- max(b, u + a)         u <- a + max(u - r dt, 0)         a: tokens of the interval dt

So b is never too small, and too large by at most r times two intervals (tests/property).

Cost: u falls as r grows. From the first rate whose u is at most r dt, u is just a. So only the
rates below it are stored, those between the mean and the present peak. A rate whose backlog exceeds
`LONGEST_S` of itself is dropped for good, because no burst of that size is of use. A packet costs
nothing, a tick some microseconds, and a limit without traffic nothing.

The suggested rate is the smallest r such that enough of the seconds with traffic had at most r
tokens. An interval longer than a second counts once, with its mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from drld.model import NS_PER_S
from drld.units import Unit

STEPS = 8
"""Stored rates in an octave: a suggested rate is at most 9 % above the rate that suffices."""
LONGEST_S = 60
"""The largest burst, in seconds of its rate: a larger one is in effect a higher rate."""


class TrafficProfile:
    """The bursts that have arrived under one limit since the daemon began to count them."""

    __slots__ = (
        "_backlog", "_first", "_last", "_last_ns", "_least", "_need", "_pair", "_seconds",
        "_since_ns", "_window", "_window_ns",
    )  # fmt: skip

    def __init__(self, least: int, start_ns: int) -> None:
        """`least`: the smallest rate of a limit of this unit, tokens/s; `start_ns`: the present."""
        self._least = least
        self._since_ns = self._last_ns = start_ns
        self._seconds: dict[int, int] = {}
        """Seconds with traffic, by the place of the smallest rate that they did not exceed."""
        self._window = self._window_ns = 0
        """Tokens and time of the second that is not over."""
        self._first = 0
        """The place of the smallest rate that is not dropped."""
        self._backlog: list[float] = []
        """The backlogs at the rates from `_first` on; at all higher rates it is `_last`."""
        self._need: list[float] = []
        """The needs at the same rates; at any rate the need is at least `_pair`."""
        self._last = self._pair = 0
        """The tokens of the last interval, and the most tokens of two consecutive intervals."""

    def add(self, arrived: int, interval_ns: int, now_ns: int) -> None:
        """Add the tokens of an interval that ends now; between two intervals there were none."""
        silent_ns = now_ns - interval_ns - self._last_ns
        self._last_ns = now_ns
        if silent_ns > 0:
            self._step(0, silent_ns)
        self._step(arrived, interval_ns)

    def _step(self, arrived: int, interval_ns: int) -> None:
        if arrived or self._last or self._backlog:
            self._serve(arrived, interval_ns / NS_PER_S)
        if arrived or self._window_ns:
            self._window += arrived
            self._window_ns += interval_ns
            if self._window_ns >= NS_PER_S:
                self._end_window()

    def _end_window(self) -> None:
        if self._window:
            # A pause at the end of a second does not make the second longer.
            rate = self._window * NS_PER_S / self._window_ns
            place = self._place(rate)
            self._seconds[place] = self._seconds.get(place, 0) + 1
        self._window = self._window_ns = 0

    def _serve(self, arrived: int, dt: float) -> None:
        """Serve all queues for `dt` seconds, at the end of which the tokens arrive."""
        last, need = self._last, self._need
        self._last = arrived
        self._pair = max(self._pair, last + arrived)
        served = self._rate(self._first) * dt
        step = 2.0 ** (1 / STEPS)
        backlog: list[float] = []
        lasting = True
        for place, before in enumerate(self._backlog):
            need[place] = max(need[place], before + arrived)
            lasting = lasting and before > served
            if lasting:
                backlog.append(arrived + before - served)
                served *= step
        while lasting and last > served:
            backlog.append(arrived + last - served)
            served *= step
        need += [0.0] * (len(backlog) - len(need))
        given_up = 0
        for place, left in enumerate(backlog):
            if left <= LONGEST_S * self._rate(self._first + place):
                break
            given_up += 1
        if given_up:
            del backlog[:given_up], need[:given_up]
            self._first += given_up
        self._backlog = backlog

    def _rate(self, place: int) -> float:
        return float(self._least * 2.0 ** (place / STEPS))

    def _place(self, rate: float) -> int:
        """The place of the smallest rate that is at least this one."""
        place = max(math.ceil(STEPS * math.log2(rate / self._least)), 0)
        return place + (self._rate(place) < rate)

    @property
    def seconds(self) -> int:
        """Seconds with traffic."""
        return sum(self._seconds.values())

    @property
    def seen_s(self) -> float:
        """The time that the profile covers, s."""
        return (self._last_ns - self._since_ns) / NS_PER_S

    def rate_for(self, part: float) -> float:
        """The smallest stored rate that this part of the seconds did not exceed."""
        wanted, found = part * self.seconds, 0
        for place, count in sorted(self._seconds.items()):
            found += count
            if found >= wanted:
                return self._rate(max(place, self._first))
        return self._rate(self._first)

    def burst_for(self, rate: float) -> float | None:
        """The burst with which a bucket of this rate would have dropped nothing, tokens.

        None: it would be more than `LONGEST_S` of the rate.
        """
        # Rounded down to a stored rate, which needs no smaller burst.
        place = self._place(rate)
        place -= self._rate(place) > rate
        if place < self._first:
            return None
        at = place - self._first
        return max(self._need[at] if at < len(self._need) else 0.0, self._pair)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A suggested rate, tokens/s, and burst, tokens."""

    rate: int
    burst: int


def suggest(profile: TrafficProfile, part: float, unit: Unit) -> Suggestion | None:
    """The smallest rate that `part` of the seconds did not exceed, and a burst that drops nothing.

    Both are rounded up to three digits, within the unit's bounds. A burst above these takes a
    higher rate instead. None: there were fewer seconds with traffic than `seconds_needed`.
    """
    if profile.seconds < seconds_needed(part):
        return None
    rate = profile.rate_for(part)
    while True:
        rounded = min(_up(rate), unit.max_rate)
        burst = profile.burst_for(rounded)
        if rounded == unit.max_rate or (burst is not None and burst <= unit.max_burst):
            deep = _up(burst if burst is not None else unit.max_burst)
            return Suggestion(rounded, min(max(deep, unit.min_burst), unit.max_burst))
        rate *= 2.0 ** (1 / STEPS)


def seconds_needed(part: float) -> int:
    """The number of seconds with traffic of which one is outside this part."""
    return math.ceil(round(1 / (1 - part), 6))


def _up(value: float) -> int:
    """A whole number of at most three digits and zeros, at least the value."""
    whole = math.ceil(value)
    unit = 10 ** max(len(str(whole)) - 3, 0)
    rounded: int = -(-whole // unit) * unit
    return rounded
