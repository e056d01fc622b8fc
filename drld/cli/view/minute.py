"""The last minute of each limit that was looked at, from reports in a row.

The client keeps it. A daemon with 10,000 limits would have to sample all of them for viewers that
look at 20, so a limit that comes into view begins with an empty sparkline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from drld.control.schema.limits import LimitReport

WINDOW_S = 60.0
BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.:-=+*#"


class Point(NamedTuple):
    """One limit at one time. Rates are those of its report: bits/s, or items/s."""

    at: float
    """Seconds of any clock."""
    demand: float
    forwarded: float | None = None
    """Rate since the point before, as the next two; None: there is no such point."""
    dropped: float | None = None
    marked: float | None = None


class _Track:
    """The points of one limit."""

    def __init__(self) -> None:
        self.points: deque[Point] = deque()
        self.report: LimitReport | None = None

    def add(self, at: float, report: LimitReport) -> None:
        rates: list[float | None] = [None] * 3
        if self.report is not None and at > self.points[-1].at:
            factor = (8 if report["unit"] == "bytes" else 1) / (at - self.points[-1].at)
            before, now = _counters(self.report), _counters(report)
            # Of a limit that is removed and added again, counters begin at 0.
            if all(new >= old for old, new in zip(before, now, strict=True)):
                rates = [(new - old) * factor for old, new in zip(before, now, strict=True)]
        self.points.append(Point(at, report["demand_bps"], *rates))
        self.report = report


class Minute:
    """The points of the last `WINDOW_S`, by id of the limit."""

    def __init__(self) -> None:
        self._tracks: dict[int, _Track] = {}
        self._uptime_s = 0.0

    def add(self, at: float, uptime_s: float, reports: Iterable[LimitReport]) -> None:
        """Add reports of this time, of a daemon that is up for so long."""
        if uptime_s < self._uptime_s:
            for track in self._tracks.values():
                track.report = None  # The counters of another daemon.
        self._uptime_s = uptime_s
        for report in reports:
            self._tracks.setdefault(report["id"], _Track()).add(at, report)
        for limit, track in list(self._tracks.items()):
            while track.points and track.points[0].at < at - WINDOW_S:
                track.points.popleft()
            if not track.points:
                del self._tracks[limit]

    def points(self, limit: int) -> Sequence[Point]:
        """The points of one limit, the oldest first."""
        track = self._tracks.get(limit)
        return track.points if track else ()


def sparkline(
    points: Iterable[tuple[float, float]], now: float, width: int, top: float, bars: str = BARS
) -> str:
    """The last minute in so many characters: a space where nothing is known, else a bar.

    `points` are times and values. A character shows the largest value of its time, and `top` is a
    full bar; any value above 0 is more than the lowest.
    """
    largest: list[float | None] = [None] * width
    for at, value in points:
        index = width - 1 - int((now - at) * width / WINDOW_S)
        if 0 <= index < width:
            largest[index] = max(value, largest[index] or 0.0)
    return "".join(" " if value is None else bars[_height(value, top)] for value in largest)


def _height(value: float, top: float) -> int:
    if value <= 0:
        return 0
    return 7 if value >= top else max(int(value / top * 8), 1)


def _counters(report: LimitReport) -> tuple[float, ...]:
    return report["forwarded_bytes"], report["dropped_bytes"], report["marked_bytes"]
