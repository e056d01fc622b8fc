"""Data set A: ten users that are all limited (figures 4.6 and 5.1 to 5.4)."""

from __future__ import annotations

from typing import Any

from testbed.harness.draw import chart
from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table
from testbed.harness.results import Results, text
from testbed.reproduce.thesis.measures import (
    MEASURES,
    PAGE,
    SOURCE,
    area,
    at_least,
    at_most,
    lines,
    mean,
    measures,
    missing,
    over,
    title,
)
from testbed.requests.case import Case
from testbed.requests.series import RequestSeries

_BUCKETS = ("counter", "queue", "queue-linf", "queue-frequency", "queue-both", "ledger-slack")
A = RequestSeries(
    "thesis/ten-users", Case("ten-users", _BUCKETS, repeat=3, seconds=300), None, 20,
)  # fmt: skip
CENTRAL = RequestSeries(
    "thesis/central",
    Case("ten-users", ("counter", "queue", "ledger"), repeat=1, seconds=300, nodes=1),
)


def _lacking(results: Results, bucket: str) -> float | None:
    """The area between one bucket's rejections and these, per request."""
    return mean(
        results, A.name, bucket, lambda run: (run["central_area"] - run["area"]) / run["requests"]
    )


def evaluate(results: Results) -> Finding:
    """Check the order of figure 5.3, and costs by figure 5.4."""
    checks = [
        Check(f"Figure 5.2: {title(bucket)} at one limiter, decisions unlike the oracle's",
              mean(results, CENTRAL.name, bucket, lambda run: abs(run["rejected"] - run["central"])
                   + run["excess"] + run["shortfall"]), most=0.0)
        for bucket in CENTRAL.case.buckets
    ]  # fmt: skip
    lacking = {bucket: _lacking(results, bucket) for bucket in _BUCKETS}
    plain = lacking["queue"]

    def relative(bucket: str) -> float | None:
        return None if plain is None else (lacking[bucket] or 0.0) / plain

    checks += [
        Check("Figure 5.1: precision of the counter by area (95.7 % with unknown parameters)",
              mean(results, A.name, "counter", area), "%", 90.0, 99.5),
        Check("Figure 5.3: the counter lacks as many rejections as the queue, ratio",
              relative("counter"), least=0.9, most=1.1),
        Check("Figure 5.3: LINF alone lacks as many as the queue, ratio",
              relative("queue-linf"), least=0.75, most=1.25),
        at_most("Figure 5.3: frequency analysis lacks fewer, ratio to the queue",
                relative("queue-frequency"), 0.6),
        at_most("Figure 5.3: frequency analysis and LINF lack fewer, ratio to the queue",
                relative("queue-both"), 0.6),
        at_most("Figure 5.4: memory with LINF over that without",
                over(results, A.name, "queue-linf", "queue", "memory_area"), 0.95),
        at_most("Figure 5.4: the same with frequency analysis",
                over(results, A.name, "queue-both", "queue-frequency", "memory_area"), 0.95),
        at_least("Figure 5.4: bytes with LINF over the counter's (thesis 1.31)",
                 over(results, A.name, "queue-linf", "counter", "bytes"), 1.0),
        at_least("Figure 5.4: bytes with frequency analysis over the counter's (thesis 3.43)",
                 over(results, A.name, "queue-frequency", "counter", "bytes"), 1.31),
        at_least("Figure 5.4: the queue is silent later than the counter",
                 over(results, A.name, "queue", "counter", "converged_s"), 1.0),
        at_least("ledger, slack: precision", mean(results, A.name, "ledger-slack", area), 99.95,
                 "%"),
    ]  # fmt: skip
    shown = {bucket: text(mean(results, A.name, bucket, area), 2) for bucket in _BUCKETS}
    compared: list[list[str]] = [
        [name, theirs, text(over(results, A.name, one, other, what))]
        for name, theirs, one, other, what in (
            ("memory, LINF over plain", "0.82", "queue-linf", "queue", "memory_area"),
            ("memory, both over frequency analysis", "0.76", "queue-both", "queue-frequency",
             "memory_area"),
            ("bytes, LINF over counter", "1.31", "queue-linf", "counter", "bytes"),
            ("bytes, frequency analysis over counter", "3.43", "queue-frequency", "counter",
             "bytes"),
            ("bytes as Erlang terms, LINF over counter", "1.31", "queue-linf", "counter",
             "term_bytes"),
            ("bytes as Erlang terms, frequency analysis over counter", "3.43", "queue-frequency",
             "counter", "term_bytes"),
            ("bytes, ledger and slack over counter", "-", "ledger-slack", "counter", "bytes"),
        )
    ]  # fmt: skip
    return Finding(
        checks,
        "precision by area, %: " + ", ".join(f"{title(one)} {value}"
                                             for one, value in shown.items()),
        "Spotify's traffic, its parameters and its system are not published. The thesis has the "
        "sum of the requests, and that each user was limited; the rest of A is rebuilt. Figure 5.3 "
        "has no numbers, so 0.6 is a guess: frequency analysis speaks after c / 30 requests of a "
        "limiter, when 30 limiters together have filled the bucket, so at A's rates it gains as "
        "little as for substantial of B. The bytes depend on the format, which the thesis does not "
        "publish: an entry of the counter has 12 bytes here and 4 or 7 as an Erlang term, and an "
        "element of the queue 16 and 20.",
        [Table("Published ratios beside ours", ["", "thesis", "here"], compared),
         Table("Ten users, 68.3 c requests in 300 s", ["bucket", *MEASURES],
               [[title(bucket), *measures(results, A.name, bucket)] for bucket in _BUCKETS])],
    )  # fmt: skip


@chart("thesis-a", 11, 3.4, columns=3)
def draw(results: Results, axes: Any) -> bool:
    """Rejections that are missing, memory and bytes over time (figures 5.3 and 5.4)."""
    drawn = lines(axes[0], results, A.name, _BUCKETS, missing)
    axes[0].set_ylabel("Rejections missing")
    lines(axes[1], results, A.name, _BUCKETS, lambda run: [size / 1e6 for size in run["memory"]])
    axes[1].set_ylabel("Memory of the fleet (MB)")
    lines(axes[2], results, A.name, _BUCKETS, lambda run: [sent / 1e3 for sent in run["sent"]])
    axes[2].set_ylabel("Sent (kB/s)")
    return drawn


FIGURE = Figure(
    "thesis-a",
    "Figures 4.6, 5.1 to 5.4: ten limited users (data set A)",
    "counter, queue and LINF alone are alike; frequency analysis is best, with LINF second. LINF "
    "saves 18 and 24 % of the memory; bytes are 31 % (LINF) and 243 % (frequency analysis) above "
    "the counter's. Alone, queue and counter are nearly identical",
    [A, CENTRAL],
    evaluate,
    draw,
    page=PAGE,
    source=SOURCE,
)
