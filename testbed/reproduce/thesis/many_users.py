"""Data set C: 5,000 users in an hour (figures 5.13 and 5.14)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from testbed.harness.draw import chart
from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table
from testbed.harness.results import Results, text
from testbed.reproduce.thesis.measures import (
    MEASURES,
    PAGE,
    SOURCE,
    at_most,
    highest,
    key,
    lines,
    mean,
    measures,
    over,
    title,
)
from testbed.requests.case import Case
from testbed.requests.series import RequestSeries

_BUCKETS = ("counter", "queue", "ledger-slack")
SERIES = RequestSeries(
    "thesis/many-users",
    Case("many-users", _BUCKETS, repeat=3, seconds=3600, users=20, quiet_s=1100),
    None,
    15,
)  # fmt: skip
"""Three times 20 users: an hour of 5,000 would take hours. A bucket is full after 1,000 s."""
ALONE = RequestSeries(
    "thesis/many-users-alone",
    replace(SERIES.case, buckets=("counter", "queue"), sessions=False),
    None,
    10,
)
"""The same volumes, but no two requests of a user come together."""


def evaluate(results: Results) -> Finding:
    """Check the ratios of memory and bytes."""
    name = SERIES.name

    def ratio(what: str, bucket: str = "queue", other: str = "counter") -> float | None:
        return over(results, name, bucket, other, what)

    checks = [
        at_most("Figure 5.13: memory of the queue over the counter's (thesis 0.136)",
                ratio("memory_area"), 0.25),
        Check("Figure 5.13: bytes of the queue over the counter's (thesis 1.00)",
              ratio("bytes"), least=0.5, most=1.5),
        at_most("Bytes of ledger and slack over the queue's",
                ratio("bytes", "ledger-slack", "queue"), 1.0),
        at_most("Rows of ledger and slack that stay when all is drained",
                highest(results, name, "ledger-slack", key("left")), 0.0),
    ]  # fmt: skip
    rows = [[title(bucket), *measures(results, name, bucket),
             text(mean(results, name, bucket, key("left")), 0)] for bucket in _BUCKETS]  # fmt: skip
    compared = [
        [
            label,
            theirs,
            text(ratio(what), 3),
            text(over(results, ALONE.name, "queue", "counter", what), 3),
            text(ratio(what, "ledger-slack"), 3),
        ]
        for label, theirs, what in (
            ("memory, by the accounting", "0.136", "memory_area"),
            ("memory, as Erlang might have it", "0.136", "erlang_area"),
            ("memory, local states alone", "-", "local_area"),
            ("bytes", "1.00", "bytes"),
            ("bytes without the headers of datagrams", "-", "payload"),
            ("bytes as Erlang terms", "1.00", "term_bytes"),
        )
    ]
    return Finding(
        checks,
        f"memory of the queue over the counter's: {text(ratio('memory_area'))}, as Erlang might "
        f"have it {text(ratio('erlang_area'))}, by local states alone {text(ratio('local_area'))}; "
        f"bytes {text(ratio('bytes'))}",
        "The thesis has Spotify's traffic of an hour; it publishes the number of users and "
        "a plot of their arrivals. Here half of the users are there from the begin, and volumes "
        "are log-normal (median 12); nothing was tuned to the published ratios. A run has 20 "
        "users: ratios are per user, but a process and the headers of datagrams weigh more. The "
        "thesis' \"0.0025 % more\" bytes are read as about equal. The counter forgets no user, and "
        "the queue forgets a user with the next message of it. Both ratios follow from how the "
        "requests of a user cluster, which the thesis does not publish: the queue keeps those of "
        "a session until the next, so it takes the published memory only if each comes alone; "
        "and from the format, as in A.",
        [Table("Over the counter's", ["", "thesis: queue", "queue", "queue, requests "
               "alone", "ledger, slack"], compared),
         Table("20 users, an hour; rows that are left at all limiters when buckets are full again",
               ["bucket", *MEASURES, "rows left"], rows)],
    )  # fmt: skip


@chart("thesis-c", 10, 3.4, columns=3)
def draw(results: Results, axes: Any) -> bool:
    """Memory, bytes and users over time (figures 5.13 and 5.14)."""
    name = SERIES.name
    drawn = lines(axes[0], results, name, _BUCKETS,
                  lambda run: [size / 1e3 for size in run["memory"]])  # fmt: skip
    axes[0].set_ylabel("Memory of the fleet (kB)")
    lines(axes[1], results, name, _BUCKETS,
          lambda run: [sent / 1e3 / run["step_s"] for sent in run["sent"]])  # fmt: skip
    axes[1].set_ylabel("Sent (kB/s)")
    lines(axes[2], results, name, _BUCKETS[:1], lambda run: run["seen"])
    axes[2].set_ylabel("Users")
    return drawn


FIGURE = Figure(
    "thesis-c",
    "Figures 5.13 and 5.14: many users (data set C)",
    "5,000 users in an hour: the queue takes 13.6 % of the counter's memory, and about as many "
    "bytes",
    [SERIES, ALONE],
    evaluate,
    draw,
    page=PAGE,
    source=SOURCE,
)
