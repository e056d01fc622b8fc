"""The trade-off (2021, figure 4; 2019, figure 6b): 6,000 publishers saturate one broker."""

from __future__ import annotations

from typing import Any

from testbed.harness.draw import chart
from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table
from testbed.harness.results import Results, ratio
from testbed.messages.case import Case
from testbed.messages.series import MessageSeries
from testbed.reproduce.srtm.delays import BROKERS, PAGE, SOURCE, cells, lines, median

SERIES = MessageSeries(
    "srtm/tradeoff", Case(6000, burst=26, repeat=3, seconds=20.0, warm_s=5.0), cpu_s=12
)


def evaluate(results: Results) -> Finding:
    """Check that two brokers are best, and that more are worse again."""
    tails = {it: median(results, SERIES.name, it, "latency", "p99") for it in BROKERS}
    best = tails["2"]
    checks = [
        Check("1 broker: 99th percentile over that of two (it is saturated)",
              ratio(tails["1"], best), least=5.0),
        *(Check(f"{it} brokers: 99th percentile over that of two", ratio(tails[it], best),
                least=1.0) for it in BROKERS[2:]),
        Check("6 brokers: 99th percentile over that of three (it rises)",
              ratio(tails["6"], tails["3"]), least=1.5),
    ]  # fmt: skip
    return Finding(
        checks,
        "one broker drowns in work, six wait for tokens",
        "Latency is that of a model of a broker with two servers (testbed/messages/broker.py), "
        "calibrated on the two loads that saturate the paper's.",
        [Table("99th percentile, ms", ["", *BROKERS],
               [[of, *cells(results, SERIES.name, of, "p99")] for of in ("access", "latency")])],
    )  # fmt: skip


@chart("srtm-tradeoff", 5.5, 3.4)
def draw(results: Results, axes: Any) -> bool:
    """Latency by the number of brokers."""
    shown = [(SERIES.name, "latency", name, name) for name in ("p50", "p95", "p99")]
    axes.set_yscale("log")
    axes.set_ylabel("Latency (ms)")
    return lines(axes, results, shown)


FIGURE = Figure(
    "srtm-tradeoff",
    "Work against waiting: latency by the number of brokers (2021, figure 4)",
    "one broker is saturated and has a large tail; two are best; from there the tail rises",
    [SERIES],
    evaluate,
    draw,
    page=PAGE,
    source=SOURCE,
)
