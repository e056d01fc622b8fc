"""Values of runs with one to six brokers, and what SRTM's figures share."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from matplotlib.axes import Axes

from testbed.harness.results import Results, text
from testbed.messages.case import Case
from testbed.plot import COLOURS

PAGE = "srtm"
SOURCE = "The papers"
BROKERS = Case(1).brokers


def values(results: Results, series: str, brokers: str, of: str, name: str) -> list[float]:
    """A value of `access` or `latency`, ms, of all runs with so many brokers."""
    return results.values(series, brokers, lambda run: float(run[of][name]))


def median(results: Results, series: str, brokers: str, of: str, name: str) -> float | None:
    """Its median; None without runs."""
    found = values(results, series, brokers, of, name)
    return statistics.median(found) if found else None


def bursts(results: Results, series: str) -> str:
    """The depths of the runs' envelopes, for a sentence."""
    found = sorted({run["burst"] for brokers in BROKERS for run in results.runs(series, brokers)})
    return f"{found[0]} to {found[-1]} messages" if found else "-"


def cells(
    results: Results, series: str, of: str, name: str, columns: Sequence[str] = BROKERS
) -> list[str]:
    """Median, least and most by the number of brokers, for a row."""
    row = []
    for brokers in columns:
        found = values(results, series, brokers, of, name)
        row.append(
            f"{text(statistics.median(found), 2)} ({min(found):.2f} to {max(found):.2f})"
            if found else "-"
        )  # fmt: skip
    return row


def lines(axes: Axes, results: Results, shown: Sequence[tuple[str, str, str, str]]) -> bool:
    """Draw the medians of (series, `access` or `latency`, value, label) over the brokers."""
    drawn = False
    for number, (series, of, name, label) in enumerate(shown):
        points = [
            (int(brokers), value)
            for brokers in BROKERS
            if (value := median(results, series, brokers, of, name)) is not None
        ]
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3,
                      color=COLOURS[number % len(COLOURS)], label=label)  # fmt: skip
            drawn = True
    axes.set_xlabel("Brokers")
    if drawn:
        axes.legend(fontsize=7)
    return drawn
