"""Values of a bucket's runs, and what the thesis' figures share."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from testbed.harness.finding import Check
from testbed.harness.results import Results, ratio, text
from testbed.plot import COLOURS
from testbed.requests.variants import VARIANTS

PAGE = "thesis"
SOURCE = "The thesis"
Run = Mapping[str, Any]
OfRun = Callable[[Run], float]


def key(name: str) -> OfRun:
    """A value of a record."""
    return lambda run: float(run[name])


def precision(run: Run) -> float:
    """Rejections over those of one bucket, %."""
    return 100 * float(run["rejected"]) / float(run["central"])


def area(run: Run) -> float:
    """The same of the cumulative curves' areas."""
    return 100 * float(run["area"]) / float(run["central_area"])


def mean(results: Results, series: str, bucket: str, of_run: OfRun) -> float | None:
    """The mean over the runs; None without runs."""
    values = results.values(series, bucket, of_run)
    return statistics.fmean(values) if values else None


def highest(results: Results, series: str, bucket: str, of_run: OfRun) -> float | None:
    """The largest value of all runs."""
    return max(results.values(series, bucket, of_run), default=None)


def spread(results: Results, series: str, bucket: str, of_run: OfRun, digits: int = 1) -> str:
    """Mean, least and most of the runs, for a cell."""
    values = results.values(series, bucket, of_run)
    if not values:
        return "-"
    least, most = (f"{of(values):.{digits}f}" for of in (min, max))
    return f"{statistics.fmean(values):.{digits}f} ({least} to {most})"


def by_repetition(results: Results, series: str, other: str, bucket: str) -> list[tuple[Run, Run]]:
    """The runs of two series that have the same repetition, so the same requests."""
    others = {run["repetition"]: run for run in results.runs(other, bucket)}
    return [
        (run, others[run["repetition"]])
        for run in results.runs(series, bucket) if run["repetition"] in others
    ]  # fmt: skip


def unknown(results: Results, series: str, bucket: str, name: str) -> float | None:
    """The largest value of what was not known; None for queues, which do not say whose it is."""
    runs = results.runs(series, bucket)
    return max((float(run[name]) for run in runs if run[name] is not None), default=None)


def beyond_unknown(results: Results, series: str, bucket: str) -> float | None:
    """By how many tokens the excess is above those that were unknown, in the worst run.

    The bound says: never above zero.
    """
    runs = results.runs(series, bucket)
    return max((run["excess"] - run["unknown"] for run in runs), default=None)


def over(results: Results, series: str, bucket: str, other: str, name: str) -> float | None:
    """A bucket's mean of a value over another bucket's."""
    return ratio(*(mean(results, series, one, key(name)) for one in (bucket, other)))


def title(bucket: str) -> str:
    """A bucket's name for people."""
    return VARIANTS[bucket].title


def measures(results: Results, series: str, bucket: str) -> list[str]:
    """The cells that every table of buckets has, by `MEASURES`."""
    capacity = results.by_series.get(series, {}).get("definition", {}).get("capacity", 1)

    def cell(of_run: OfRun, digits: int = 0, scale: float = 1.0) -> str:
        value = mean(results, series, bucket, of_run)
        return text(None if value is None else value / scale, digits)

    rejects = any(run["central"] for run in results.runs(series, bucket))
    return [
        spread(results, series, bucket, precision) if rejects else "-",
        cell(area, 1) if rejects else "-",
        cell(key("excess"), 3, capacity), cell(key("shortfall"), 2),
        cell(long_run, 3), cell(key("memory_area"), 0, 1000 * _steps(results, series, bucket)),
        cell(key("resident"), 0, 1000), cell(key("bytes"), 0, 1000), cell(key("messages")),
        cell(key("converged_s"), 1),
    ]  # fmt: skip


MEASURES = (
    "precision, %", "by area, %", "peak excess, c", "peak shortfall, tokens", "long-run factor",
    "memory, kB", "as Python objects, kB", "sent, kB", "messages", "silent after, s",
)  # fmt: skip
"""Headings of `measures`. Memory is the mean of the whole fleet's by the accounting of
`testbed/requests/memory.py`, and Python's after the last request."""


def long_run(run: Run) -> float:
    """Admitted over one bucket's, in the second half of the run; 1 if none was admitted."""
    return float(run["late_admitted"]) / float(run["late_central"]) if run["late_central"] else 1.0


def _steps(results: Results, series: str, bucket: str) -> float:
    return mean(results, series, bucket, lambda run: len(run["memory"])) or 1.0


def at_most(statement: str, value: float | None, most: float, unit: str = "") -> Check:
    """A check with an upper bound."""
    return Check(statement, value, unit, most=most)


def at_least(statement: str, value: float | None, least: float, unit: str = "") -> Check:
    """A check with a lower bound."""
    return Check(statement, value, unit, least=least)


def lines(
    axes: Axes, results: Results, series: str, buckets: Sequence[str], of_run: Callable[[Run], Any]
) -> bool:
    """Draw a curve over time of each bucket's first run; return whether there was one."""
    drawn = False
    for number, bucket in enumerate(buckets):
        for run in results.runs(series, bucket)[:1]:
            values = of_run(run)
            times_s = [index * run["step_s"] for index in range(len(values))]
            axes.plot(times_s, values, color=COLOURS[number % len(COLOURS)], label=title(bucket))
            drawn = True
    axes.set_xlabel("Time (s)")
    if drawn:
        axes.legend(fontsize=7)
    return drawn


def bars(axes: Axes, results: Results, series: Mapping[str, str], buckets: Sequence[str]) -> bool:
    """Draw the largest excess of each bucket in each series; return whether there was one."""
    drawn, width = False, 0.8 / len(buckets)
    for number, bucket in enumerate(buckets):
        points = [
            (place + number * width, excess)
            for place, name in enumerate(series.values())
            if (excess := highest(results, name, bucket, key("excess"))) is not None
        ]
        if points:
            places, excesses = zip(*points, strict=True)
            axes.barh(places, excesses, width, color=COLOURS[number], label=title(bucket))
            drawn = True
    axes.set_yticks([place + 0.4 - width / 2 for place in range(len(series))], list(series))
    axes.invert_yaxis()
    if drawn:
        axes.legend(fontsize=7)
    return drawn


def cumulative(run: Run) -> list[int]:
    """Rejections up to each second."""
    return [ours for ours, _ in run["curve"]]


def missing(run: Run) -> list[int]:
    """Rejections that one bucket had more, up to each second."""
    return [central - ours for ours, central in run["curve"]]
