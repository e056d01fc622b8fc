"""Bursty and periodic publishers (the workloads of 2021, figure 5), spread evenly."""

from __future__ import annotations

from typing import Any

from testbed.harness.draw import chart
from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table
from testbed.harness.results import Results, ratio
from testbed.messages.case import Case
from testbed.messages.series import MessageSeries
from testbed.reproduce.srtm.delays import BROKERS, PAGE, SOURCE, bursts, cells, lines, median
from testbed.reproduce.srtm.penalty import PROFILED

_SERIES = {
    "Poisson": PROFILED,
    "Poisson, batches of 10": MessageSeries("srtm/batches", Case(1000, batch=10), cpu_s=6),
    "periodic": MessageSeries("srtm/periodic", Case(1000, periodic=True), cpu_s=9),
    "periodic, batches of 10": MessageSeries(
        "srtm/periodic-batches", Case(1000, periodic=True, batch=10), cpu_s=6
    ),
}


def evaluate(results: Results) -> Finding:
    """Check that batches multiply the penalty by about their size."""

    def tail(kind: str) -> float | None:
        return median(results, _SERIES[kind].name, "6", "access", "p99")

    checks = [
        Check(f"6 brokers: 99th percentile of {kind}, batches of 10, over that of single messages",
              ratio(tail(f"{kind}, batches of 10"), tail(kind)), least=7.0, most=14.0)
        for kind in ("Poisson", "periodic")
    ]  # fmt: skip
    return Finding(
        checks,
        "batches of ten wait about ten times as long; periodic publishers wait less",
        "Bursts and delays of batches differ much between traces, so all runs' spread is shown.",
        [Table("99th percentile of the access delay, ms", ["", "burst", *BROKERS],
               [[kind, bursts(results, series.name), *cells(results, series.name, "access", "p99")]
                for kind, series in _SERIES.items()])],
    )  # fmt: skip


@chart("srtm-bursts", 5.5, 3.4)
def draw(results: Results, axes: Any) -> bool:
    """Tails by the number of brokers."""
    axes.set_yscale("symlog", linthresh=1.0)
    axes.set_ylabel("99th percentile of the access delay (ms)")
    shown = [(series.name, "access", "p99", kind) for kind, series in _SERIES.items()]
    return lines(axes, results, shown)


FIGURE = Figure(
    "srtm-bursts",
    "Batches and periods: access delay by the number of brokers (the workloads of 2021, figure 5)",
    "an even spread over six brokers misses a tail of 1 ms with every workload, and with batches "
    "by far",
    list(_SERIES.values()),
    evaluate,
    draw,
    page=PAGE,
    source=SOURCE,
)
