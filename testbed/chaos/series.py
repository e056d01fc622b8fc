"""Bytes at the sink over time, and the figures of a limit: overshoot, recovery, use. Pure.

A series is cumulative bytes at points of time, which need not be evenly spaced. Each sample has its
own time, so a late sample makes a figure coarser and not wrong. While the host stands still nothing
can pass: use and recovery are of seconds in which samples came (`Seen.awake`). Overshoot is of all
time.

The canaries pass the same interfaces under a limit of their own. Their rate is known beforehand,
and is taken out of use and recovery. Overshoot includes it, which can only make it larger.
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

SAMPLE_S = 0.02
LATEST_S = 2 * SAMPLE_S
"""Longest time between samples of a host that does not stand still: one may be a period late."""
WINDOW_S = 1.0
FULL = 0.9
"""A fleet is back when each mean of `WINDOW_S` is at least this part of the limit."""
LEAST_SHARE = 0.5
"""The split is back when each limiter has at least this part of its even share."""
_FLOOR_PACKETS, _PACKET_BYTES = 12, 1500
"""The least depth of an FPS bucket."""


@dataclass(slots=True)
class Series:
    """Cumulative IP bytes at the sink, by limiter; times in seconds, of any clock."""

    times: list[float] = field(default_factory=list)
    forwarded: dict[str, list[float]] = field(default_factory=dict)

    def add(self, time_s: float, values: Mapping[str, float]) -> None:
        """Append a sample."""
        self.times.append(time_s)
        for name, value in values.items():
            self.forwarded.setdefault(name, []).append(value)

    def total(self) -> list[float]:
        """The sum of all limiters."""
        return [sum(column) for column in zip(*self.forwarded.values(), strict=True)]

    def mean(self, values: Sequence[float], begin_s: float) -> float:
        """Bytes/s in the `WINDOW_S` that begins then."""
        passed = self.at(values, begin_s + WINDOW_S) - self.at(values, begin_s)
        return passed / WINDOW_S

    def steps(self, begin_s: float, end_s: float, step_s: float) -> dict[str, list[int]]:
        """Bytes of each limiter in each step of a time."""
        edges = [begin_s + step_s * number for number in range(int((end_s - begin_s) / step_s) + 1)]
        return {
            name: [
                round(self.at(values, edge + step_s) - self.at(values, edge)) for edge in edges[:-1]
            ]
            for name, values in self.forwarded.items()
        }

    def overshoot(self, span: tuple[float, float], rate: float, window_s: float) -> float:
        """The most bytes beyond rate x time in any window of at most this length.

        Windows begin and end at samples of the `span` of time. 0 where there is no sample.
        """
        chosen = slice(bisect.bisect_left(self.times, span[0]),
                       bisect.bisect_right(self.times, span[1]))  # fmt: skip
        least: deque[tuple[float, float]] = deque()
        # (time, excess) of the samples within the window, excess rising: the first is the least.
        most = 0.0
        for time_s, value in zip(self.times[chosen], self.total()[chosen], strict=True):
            excess = value - rate * time_s
            while least and least[-1][1] >= excess:
                least.pop()
            least.append((time_s, excess))
            while time_s - least[0][0] > window_s + 1e-9:
                least.popleft()
            most = max(most, excess - least[0][1])
        return most

    def at(self, values: Sequence[float], time_s: float) -> float:
        """A series at a time, interpolated; its first or last value outside."""
        index = bisect.bisect_right(self.times, time_s)
        if index == 0:
            return values[0]
        if index == len(self.times):
            return values[-1]
        before, after = self.times[index - 1], self.times[index]
        part = (time_s - before) / (after - before)
        return values[index - 1] + part * (values[index] - values[index - 1])


@dataclass(slots=True)
class Seen:
    """The samples at the sink, of all limits, over time."""

    all: Series = field(default_factory=Series)
    awake: Series = field(default_factory=Series)
    """The samples without the canaries, and without the time before a late sample and its bytes.
    Its clock is right at the first sample, and stands still before a late one."""
    canary: float = 0.0
    """Rate of each limiter's canary, bytes/s."""
    _late: list[float] = field(default_factory=list)

    def add(self, time_s: float, values: Mapping[str, int], late_s: float = 0.0) -> None:
        """Append a sample; `late_s`: most lateness of a processor since the last sample."""
        self._late.append(late_s if late_s > SAMPLE_S else 0.0)
        if not self.all.times:
            self.awake.add(time_s, values)
        else:
            ran_s = time_s - self.all.times[-1]
            late = ran_s > LATEST_S
            passed = {name: value - self.all.forwarded[name][-1] for name, value in values.items()}
            canary = self.canary * ran_s
            self.awake.add(
                self.awake.times[-1] + (0.0 if late else ran_s),
                {
                    name: self.awake.forwarded[name][-1]
                    + (0.0 if late else max(size - canary, 0.0))
                    for name, size in passed.items()
                },
            )
        self.all.add(time_s, values)

    def awake_at(self, time_s: float) -> float:
        """A time by the clock of `awake`."""
        return self.all.at(self.awake.times, time_s)

    def late_s(self, begin_s: float, end_s: float) -> float:
        """The longest time for which the clock of `awake`, or one processor at a stretch, stood
        still in a second that ends between two times."""
        times = self.all.times
        stood_s = [
            time_s - awake_s for time_s, awake_s in zip(times, self.awake.times, strict=True)
        ]
        ends = slice(bisect.bisect_left(times, begin_s), bisect.bisect_right(times, end_s))
        of_all_s = (
            stood - self.all.at(stood_s, time_s - WINDOW_S)
            for time_s, stood in zip(times[ends], stood_s[ends], strict=True)
        )
        begins = bisect.bisect_left(times, begin_s - WINDOW_S)
        return max([0.0, *of_all_s, *self._late[begins : ends.stop]])


def depths(limiters: int, burst: float) -> float:
    """Most bytes that all buckets of a fleet hold together (docs/allocators.md)."""
    return max(math.sqrt(2 * limiters) * burst, limiters * _FLOOR_PACKETS * _PACKET_BYTES)


def recovery_s(seen: Seen, since_s: float, rate: float, lasts_s: float = 0.0) -> float | None:
    """How long after a time the fleet is back for good: from then on, in every window of `WINDOW_S`
    up to the end of the series, the total is at least `FULL` of the rate, bytes/s, and each
    limiter at least `LEAST_SHARE` of its even share.

    None: it is not at the end, or has not been for `lasts_s` (from the first such window's begin to
    the last one's).
    """
    series = seen.awake
    total = series.total()
    least = LEAST_SHARE * rate / len(series.forwarded)
    begin_s = last_s = seen.awake_at(since_s)
    back_s: float | None = None
    for start_s in (begin_s, *series.times[bisect.bisect_left(series.times, begin_s) :]):
        if start_s + WINDOW_S > series.times[-1]:
            break
        last_s = start_s
        if series.mean(total, start_s) < FULL * rate or any(
            series.mean(values, start_s) < least for values in series.forwarded.values()
        ):
            back_s = None
        elif back_s is None:
            back_s = start_s
    return None if back_s is None or last_s - back_s < lasts_s else back_s - begin_s


def lowest(seen: Seen, begin_s: float, end_s: float) -> float:
    """The lowest mean of `WINDOW_S` of the total between two times, bytes/s; NaN if too short."""
    series = seen.awake
    total = series.total()
    first = bisect.bisect_left(seen.all.times, begin_s)
    last_s = seen.awake_at(end_s) - WINDOW_S
    means = [series.mean(total, start_s) for start_s in series.times[first:] if start_s <= last_s]
    return min(means, default=math.nan)
