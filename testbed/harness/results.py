"""The runs of several series, and the values that checks are made of. Pure.

Rates are bits/s, times seconds from the start of a run, as in result.json (docs/testbed.md).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from testbed.result import OVERSHOOT

Run = Mapping[str, Any]
OfRun = Callable[[Run], float]


class Results:
    """Results by series name. Series and runs may be missing."""

    def __init__(self, by_series: Mapping[str, Mapping[str, Any]]) -> None:
        self.by_series = by_series

    def runs(self, series: str, allocator: str) -> list[Run]:
        """The runs of an allocator, by repetition."""
        found = self.by_series.get(series, {}).get("runs", [])
        own = [run for run in found if run["allocator"] == allocator]
        return sorted(own, key=lambda run: int(run["repetition"]))

    def has(self, series: str) -> bool:
        """Whether the series exists; true for all if no series does, so that checks are listed."""
        return series in self.by_series or not self.by_series

    def wanted(self, series: str, allocators: Sequence[str]) -> list[str]:
        """The allocators that the series includes; all if the series is missing."""
        definition = self.by_series.get(series, {}).get("definition", {})
        return [name for name in allocators if name in definition.get("allocators", allocators)]

    def limit_bps(self, series: str) -> float:
        """The global limit; NaN if the series is missing."""
        return float(self.by_series.get(series, {}).get("limit_bps", "nan"))

    def values(self, series: str, allocator: str, of_run: OfRun) -> list[float]:
        """A value of each run."""
        return [of_run(run) for run in self.runs(series, allocator)]

    def median(self, series: str, allocator: str, of_run: OfRun) -> float | None:
        """The median over the runs; None without runs."""
        values = self.values(series, allocator, of_run)
        return statistics.median(values) if values else None

    def used(self, series: str, allocator: str) -> float | None:
        """The aggregate over the limit, IP-layer bytes; median over the runs."""
        aggregate = self.median(series, allocator, lambda run: float(run["aggregate_bps"]))
        return None if aggregate is None else aggregate / self.limit_bps(series)

    def jain(self, series: str, allocator: str) -> float | None:
        """Jain's index over all flows; median over the runs."""
        return self.median(series, allocator, lambda run: float(run["jain"]))

    def share(self, series: str, allocator: str, limiter: str) -> float | None:
        """A limiter's part of the forwarded bytes; median over the runs."""
        return self.median(series, allocator, lambda run: float(run["share"][limiter]))

    def highest(self, series: str, allocator: str) -> float | None:
        """The highest 1 s window over the limit; median over the runs."""
        limit_bps = self.limit_bps(series)
        return self.median(series, allocator, lambda run: max(totals(run, 1.0)) / limit_bps)

    def within(self, series: str, allocator: str) -> float | None:
        """`share_within`; median over the runs."""
        limit_bps = self.limit_bps(series)
        return self.median(series, allocator, lambda run: share_within(run, limit_bps))

    def control(self, series: str, allocator: str) -> float | None:
        """Control traffic of all limiters over the limit; median over the runs."""
        limiters = len(self.by_series.get(series, {}).get("limiters", ()))
        sent = self.median(
            series, allocator, lambda run: float(run["gossip"]["bytes_per_limiter_per_s"])
        )
        return None if sent is None else ratio(sent * 8 * limiters, self.limit_bps(series))


def totals(
    run: Run, window_s: float, begin_s: float | None = None, end_s: float | None = None
) -> list[float]:
    """The forwarding rate of all limiters in consecutive windows of the measured time, bits/s."""
    return windows(
        [sum(row[1] for row in rows) for rows in zip(*run["series"].values(), strict=True)],
        run["series_step_s"],
        window_s,
        run["warmup_s"] if begin_s is None else begin_s,
        run["seconds"] if end_s is None else end_s,
    )


def share_within(run: Run, limit_bps: float) -> float:
    """Part of the 1 s windows with at most `OVERSHOOT` times the limit."""
    rates = totals(run, 1.0)
    return sum(rate <= OVERSHOOT * limit_bps for rate in rates) / len(rates)


def forwarded(run: Run, limiter: str, begin_s: float, end_s: float) -> float:
    """Mean rate of one limiter, bits/s."""
    (rate,) = windows(
        [row[1] for row in run["series"][limiter]],
        run["series_step_s"],
        end_s - begin_s,
        begin_s,
        end_s,
    )
    return rate


def t80_times(events: Iterable[Mapping[str, Any]]) -> list[float]:
    """Every flow's t80 in order, s: infinite for never, and from the detection for a death."""
    times = []
    for event in events:
        since_s = (event["in_force_s"] or 0.0) if "death" in event["kind"] else 0.0
        for flow in event["flows"]:
            t80_s = flow["t80_s"]
            times.append(math.inf if t80_s is None else max(t80_s - since_s, 0.0))
    return sorted(times)


def goodput(flow: Mapping[str, Any], step_s: float, begin_s: float, end_s: float) -> float:
    """Mean goodput of one flow, bits/s."""
    (rate,) = windows(flow["goodput_series_bps"], step_s, end_s - begin_s, begin_s, end_s)
    return rate


def windows(
    rates: Sequence[float], step_s: float, window_s: float, begin_s: float, end_s: float
) -> list[float]:
    """Means of rates over consecutive whole windows."""
    first, last = round(begin_s / step_s), min(round(end_s / step_s), len(rates))
    width = max(round(window_s / step_s), 1)
    return [
        sum(rates[start : start + width]) / width for start in range(first, last - width + 1, width)
    ]


def spread(values: Sequence[float]) -> float:
    """Standard deviation; 0 for one value."""
    return statistics.pstdev(values)


def ratio(above: float | None, below: float | None) -> float | None:
    """A quotient; None if a value is missing."""
    return None if above is None or not below else above / below


def difference(left: float | None, right: float | None) -> float | None:
    """A difference; None if a value is missing."""
    return None if left is None or right is None else left - right


def mean_and_spread(values: Iterable[float], scale: float = 1.0) -> tuple[str, str]:
    """Mean and standard deviation over runs, as in the paper's tables; dashes without values."""
    scaled = [value / scale for value in values]
    if not scaled:
        return "-", "-"
    deviation = f"{statistics.stdev(scaled):.2f}" if len(scaled) > 1 else "-"
    return f"{statistics.fmean(scaled):.2f}", deviation


def text(value: float | None, digits: int = 2) -> str:
    """A value for a sentence; a dash for None."""
    return "-" if value is None else f"{value:.{digits}f}"


def texts(values: Iterable[float | None], digits: int = 3) -> list[str]:
    """Values for the cells of a table."""
    return [text(value, digits) for value in values]
