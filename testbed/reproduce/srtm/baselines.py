"""Even spread against concentration (2021, figure 5a): the paper's baselines LB and Conc.

Both spread a topic evenly: LB over all six brokers, and Conc over the fewest that carry its rate.
The brokers are idle, so neither needs a placement of publishers.
"""

from __future__ import annotations

from typing import Any

from testbed.harness.draw import chart
from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table
from testbed.harness.results import Results, ratio
from testbed.messages.arrivals import RATE
from testbed.messages.case import Case
from testbed.messages.series import MessageSeries
from testbed.plot import COLOURS
from testbed.reproduce.srtm.delays import PAGE, SOURCE, cells, median
from testbed.reproduce.srtm.penalty import BURST

SLO_MS = 1.0
"""The paper's bound on the 99th percentile of the latency."""
CAPACITY = 45_000
"""The rate that Conc gives one broker, messages/s: three quarters of what saturates the model."""
LB = "6"
_PUBLISHERS = (2000, 4000, 6000, 8000, 10_000)


def concentrated(publishers: int) -> str:
    """The number of brokers that Conc uses."""
    return str(-(-publishers * RATE // CAPACITY))


SERIES = {
    publishers: MessageSeries(
        f"srtm/baselines-{publishers}",
        Case(publishers, brokers=(concentrated(publishers), LB), burst=BURST, repeat=3,
             seconds=5.0, warm_s=1.0),
        cpu_s=publishers / 1000,
    )
    for publishers in _PUBLISHERS
}  # fmt: skip


def tail(results: Results, publishers: int, brokers: str) -> float | None:
    """The 99th percentile of the latency, ms, the median of the runs."""
    return median(results, SERIES[publishers].name, brokers, "latency", "p99")


def evaluate(results: Results) -> Finding:
    """Check that Conc meets the bound with each number of publishers, and LB with none."""
    checks, rows = [], []
    for publishers, series in SERIES.items():
        few = concentrated(publishers)
        checks += [
            Check(f"{publishers} publishers, Conc ({few} of 6 brokers): 99th percentile",
                  tail(results, publishers, few), "ms", most=SLO_MS),
            Check(f"{publishers} publishers, LB: 99th percentile",
                  tail(results, publishers, LB), "ms", least=SLO_MS),
        ]  # fmt: skip
        rows.append(
            [str(publishers), few, *(
                cells(results, series.name, "latency", "p99", [it])[0] for it in (few, LB)
            )]
        )  # fmt: skip
    first, last = _PUBLISHERS[0], _PUBLISHERS[-1]
    checks.append(
        Check(f"LB: 99th percentile of {first} publishers over that of {last} (it falls)",
              ratio(tail(results, first, LB), tail(results, last, LB)), least=3.0)
    )  # fmt: skip
    return Finding(
        checks,
        f"LB waits for tokens, and the more so the smaller the topic; Conc meets {SLO_MS:g} ms",
        f"Latency is that of the model of a broker. The paper measures what a broker carries; here "
        f"Conc gives one {CAPACITY:,} messages/s. Max-Min and SRTM differ from Conc only where "
        "brokers have other loads, or publishers are correlated: they need a placement.",
        [Table("99th percentile of the latency, ms",
               ["publishers", "Conc's brokers", "Conc", "LB"], rows)],
    )  # fmt: skip


@chart("srtm-baselines", 5.5, 3.4)
def draw(results: Results, axes: Any) -> bool:
    """Latency by the number of publishers."""
    drawn = False
    for number, name in enumerate(("Conc", "LB")):
        points = [
            (publishers, value)
            for publishers in _PUBLISHERS
            if (value := tail(results, publishers,
                              LB if name == "LB" else concentrated(publishers))) is not None
        ]  # fmt: skip
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3,
                      color=COLOURS[number], label=name)  # fmt: skip
            drawn = True
    axes.axhline(SLO_MS, color="k", linestyle=":", label="the bound")
    axes.set_xlabel("Publishers")
    axes.set_ylabel("99th percentile of the latency (ms)")
    axes.legend(fontsize=7)
    return drawn


FIGURE = Figure(
    "srtm-baselines",
    "Even spread against concentration: latency with LB and Conc (2021, figure 5a)",
    "Conc meets a tail of 1 ms with any number of publishers, and LB with none; LB's falls as a "
    "topic grows",
    list(SERIES.values()),
    evaluate,
    draw,
    page=PAGE,
    source=SOURCE,
)
