"""What fleets of real daemons admit too much, beside those under virtual time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from testbed.harness.draw import chart
from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table
from testbed.harness.results import Results, ratio, text
from testbed.reproduce.thesis.measures import (
    PAGE,
    SOURCE,
    at_most,
    bars,
    highest,
    key,
    mean,
    spread,
    title,
)
from testbed.reproduce.thesis.overshoot import CASE, SERIES
from testbed.requests.series import RealSeries

_BUCKETS = ("counter", "queue-both", "ledger-slack")
REAL = {
    nodes: RealSeries(
        f"thesis/real-{nodes}",
        replace(CASE, nodes=nodes, seconds=10, repeat=3, delay_ms=0, jitter_ms=0, buckets=_BUCKETS),
        {"repeat": 1},
    )
    for nodes in (3, 10)
}
"""Daemons over loopback."""
_SIMULATED = {nodes: SERIES[nodes, "300 ms, 10 r"] for nodes in REAL}


def evaluate(results: Results) -> Finding:
    """Check the excess of the ledger, and that the simulator is not kinder to the counter."""
    excess = key("excess")
    checks: list[Check] = []
    rows = []
    for nodes, series in REAL.items():
        name, simulated = series.name, _SIMULATED[nodes].name
        checks += [
            # The user asks again when it has an answer, so that one token is under way at a time.
            at_most(f"{nodes} daemons, ledger and slack: excess, tokens",
                    highest(results, name, "ledger-slack", excess), nodes),
            Check(f"{nodes} daemons, counter: excess over that under virtual time",
                  ratio(*(mean(results, one, "counter", excess) for one in (name, simulated))),
                  least=0.5, most=1.5),
        ]  # fmt: skip
        rows += [
            [f"{nodes}", title(bucket), spread(results, name, bucket, excess),
             spread(results, simulated, bucket, excess),
             text(highest(results, name, bucket, key("shortfall")), 2),
             spread(results, name, bucket, lambda run: run["requests"] / run["took_s"]),
             text(mean(results, name, bucket, key("median_ms")), 1),
             text(highest(results, name, bucket, key("longest_ms")), 1)]
            for bucket in _BUCKETS
        ]  # fmt: skip
    found = {
        bucket: [text(highest(results, one.name, bucket, excess), 1) for one in REAL.values()]
        for bucket in _BUCKETS
    }
    return Finding(
        checks,
        "most tokens above c = 100 that 3 and 10 daemons admit to a user who asks for 10 times the "
        "rate: " + ", ".join(f"{title(bucket)} {' and '.join(two)}"
                             for bucket, two in found.items()),
        "Daemons over loopback, gossip each 300 ms, one limit with a bucket for each user, asked "
        "over HTTP. The user asks a random limiter, and the next when that has answered; a "
        "question is dated when it is asked. Under virtual time, paths take 20 to 40 ms.",
        [Table("One user, c = 100 and r = 10/s, 100 requests/s for 10 s",
               ["daemons", "bucket", "peak excess, tokens", "under virtual time",
                "peak shortfall, tokens", "requests/s", "median answer, ms", "longest answer, ms"],
               rows)],
    )  # fmt: skip


@chart("thesis-real", 6, 2.6)
def draw(results: Results, axes: Any) -> bool:
    """Peak excess by the number of daemons."""
    names = {f"{nodes} daemons": series.name for nodes, series in REAL.items()}
    drawn = bars(axes, results, names, _BUCKETS)
    axes.set_xlabel("Peak excess (tokens of c = 100)")
    return drawn


FIGURE = Figure(
    "thesis-real",
    "What real daemons admit too much",
    "an evaluation on real servers is future work",
    [*REAL.values(), *_SIMULATED.values()],
    evaluate,
    draw,
    page=PAGE,
    source=SOURCE,
)
