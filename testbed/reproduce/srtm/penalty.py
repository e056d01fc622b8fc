"""The DRL penalty alone (2019, figure 6a): 1,000 Poisson publishers, single messages."""

from __future__ import annotations

from typing import Any

from drld.messages.penalty import mean_delay, tail_delay
from testbed.harness.draw import chart
from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table
from testbed.harness.results import Results, text
from testbed.messages.case import Case
from testbed.messages.series import MessageSeries
from testbed.reproduce.srtm.delays import BROKERS, PAGE, SOURCE, bursts, cells, lines, median

RHO = 1 / 1.1
BURST = 26
"""The least whole bucket that at most one message in a hundred finds too empty, by eq. (1)."""
PAPER_P99_MS = 14.7
"""End to end, with six brokers."""
REFERENCE_MS = (2.25, 4.23, 7.26, 9.43, 11.1)
"""The tails of a simulator that was written before this one and apart from it, with one trace; two
to six brokers."""
FIXED = MessageSeries("srtm/penalty", Case(1000, burst=BURST), cpu_s=6)
PROFILED = MessageSeries("srtm/penalty-profiled", Case(1000), cpu_s=9)


def evaluate(results: Results) -> Finding:
    """Check the tails against the law, and the means against eq. (1)."""
    rate = float(FIXED.case.rate)
    checks = [
        Check("One broker: 99th percentile of the access delay, median",
              median(results, FIXED.name, "1", "access", "p99"), "ms", most=0.0),
    ]  # fmt: skip
    rows = []
    for brokers, reference_ms in zip(BROKERS[1:], REFERENCE_MS, strict=True):
        parts = int(brokers)
        law_ms = 1e3 * tail_delay(rate, BURST, 1 / parts)
        equation_ms = 1e3 * mean_delay(rate / parts, BURST / parts, RHO)
        tail, mean = (
            median(results, FIXED.name, brokers, "access", name) for name in ("p99", "mean")
        )
        checks += [
            Check(f"{parts} brokers: 99th percentile over the law's {law_ms:.2f} ms",
                  None if tail is None else tail / law_ms, least=0.85, most=1.15),
            Check(f"{parts} brokers: the same over the reference's {reference_ms} ms",
                  None if tail is None else tail / reference_ms, least=0.85, most=1.15),
            Check(f"{parts} brokers: mean over eq. (1)'s {equation_ms:.2f} ms",
                  None if mean is None else mean / equation_ms, least=0.85, most=1.15),
        ]  # fmt: skip
        rows.append([brokers, text(law_ms, 2), text(tail, 2), text(equation_ms, 2), text(mean, 2)])
    last = median(results, FIXED.name, BROKERS[-1], "latency", "p99")
    checks.append(
        Check(f"6 brokers: 99th percentile end to end over the paper's {PAPER_P99_MS} ms",
              None if last is None else last / PAPER_P99_MS, least=0.75, most=1.25)
    )  # fmt: skip
    return Finding(
        checks,
        f"profiled buckets have {bursts(results, PROFILED.name)}; eq. (1) gives {BURST}",
        "The paper's tail with six brokers has its hosts and network in it, and its bucket is not "
        "published; one of 32 messages would explain it.",
        [
            Table("Access delay, ms, bucket of 26 messages",
                  ["brokers", "p99 by the law", "p99", "mean by eq. (1)", "mean"], rows),
            Table("The same with profiled buckets: 99th percentile, ms", ["", *BROKERS],
                  [["access", *cells(results, PROFILED.name, "access", "p99")]]),
        ],
    )  # fmt: skip


@chart("srtm-penalty", 5.5, 3.4)
def draw(results: Results, axes: Any) -> bool:
    """Delays by the number of brokers."""
    shown = [(FIXED.name, "access", name, name) for name in ("p50", "p95", "p99")]
    drawn = lines(axes, results, shown)
    rate = float(FIXED.case.rate)
    axes.plot([int(it) for it in BROKERS],
              [1e3 * tail_delay(rate, BURST, 1 / int(it)) for it in BROKERS], "k:",
              label="law of the tail")  # fmt: skip
    axes.legend(fontsize=7)
    axes.set_ylabel("Access delay (ms)")
    return drawn


FIGURE = Figure(
    "srtm-penalty",
    "What splitting a bucket costs: access delay by the number of brokers (2019, figure 6a)",
    "the tail grows with each broker, to 14.7 ms with six",
    [FIXED, PROFILED],
    evaluate,
    draw,
    page=PAGE,
    source=SOURCE,
)
