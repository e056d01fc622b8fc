"""Data set C: 5,000 users in an hour (figures 5.13 and 5.14)."""

from __future__ import annotations

from matplotlib.axes import Axes

from testbed.harness.draw import chart
from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table
from testbed.harness.results import Results, text
from testbed.reproduce.thesis.measures import (
    MEASURES,
    PAGE,
    SOURCE,
    at_most,
    lines,
    measures,
    over,
    title,
)
from testbed.requests.case import Case, RequestSeries

_BUCKETS = ("counter", "queue", "ledger-slack")
SERIES = RequestSeries(
    "thesis/many-users", Case("many-users", _BUCKETS, repeat=1, seconds=3600), None, 300
)


def evaluate(results: Results) -> Finding:
    """Check the ratios of memory and bytes."""
    name = SERIES.name
    checks = [
        at_most("Figure 5.13: memory of the queue over the counter's (thesis 0.136)",
                over(results, name, "queue", "counter", "memory_area"), 0.25),
        Check("Figure 5.13: bytes of the queue over the counter's (thesis 1.00)",
              over(results, name, "queue", "counter", "bytes"), least=0.5, most=1.5),
        at_most("Bytes of ledger and slack over the queue's",
                over(results, name, "ledger-slack", "queue", "bytes"), 1.0),
    ]  # fmt: skip
    rows = [[title(bucket), *measures(results, name, bucket)] for bucket in _BUCKETS]
    return Finding(
        checks,
        "memory of the queue over the counter's: "
        f"{text(over(results, name, 'queue', 'counter', 'memory_area'))}, by local state alone "
        f"{text(over(results, name, 'queue', 'counter', 'local_area'))}; bytes "
        f"{text(over(results, name, 'queue', 'counter', 'bytes'))}",
        "The thesis has Spotify's traffic of an hour; it publishes the number of users and "
        "a plot of their arrivals. Here half of the users are there from the begin, volumes are "
        "log-normal (median 12), and nothing was tuned to the published ratio. The thesis' \"0.0025"
        ' % more" bytes are read as about equal.',
        [Table("5,000 users, an hour", ["bucket", *MEASURES], rows)],
    )  # fmt: skip


@chart("thesis-c", 6, 3.4)
def draw(results: Results, axes: Axes) -> bool:
    """Memory over time (figure 5.13)."""
    drawn = lines(axes, results, SERIES.name, _BUCKETS,
                  lambda run: [size / 1e6 for size in run["memory"]])  # fmt: skip
    axes.set_ylabel("Memory of the fleet (MB)")
    return drawn


FIGURE = Figure(
    "thesis-c",
    "Figures 5.13 and 5.14: 5,000 users (data set C)",
    "the queue takes 13.6 % of the counter's memory, and about as many bytes",
    [SERIES],
    evaluate,
    draw,
    page=PAGE,
    source=SOURCE,
)
