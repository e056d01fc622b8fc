"""What the thesis leaves open: high rates, a slow user who bursts, many keys, clocks (E, F, G)."""

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
    at_least,
    at_most,
    highest,
    key,
    lines,
    long_run,
    mean,
    measures,
    over,
    title,
)
from testbed.requests.case import Case, RequestSeries

_FAST = Case("high-rate", ("counter",), capacity=100, rate=100, per_s=1)
E = RequestSeries(
    "thesis/high-rate",
    replace(_FAST, repeat=1, seconds=20,
            buckets=("counter", "queue", "queue-frequency", "ledger", "ledger-slack")),
    {"repeat": 1}, 10,
)  # fmt: skip
F = RequestSeries(
    "thesis/slow-then-burst",
    replace(_FAST, data="slow-then-burst", repeat=1, seconds=4, nodes=1,
            buckets=("counter", "counter-literal", "queue", "ledger")),
)  # fmt: skip
G = RequestSeries(
    "thesis/many-keys",
    Case("many-keys", ("counter", "queue", "ledger", "ledger-slack"), repeat=1, seconds=10,
         capacity=100, rate=10, per_s=1), None, 20,
)  # fmt: skip
CLOCKS = {
    skewed_s: RequestSeries(
        f"thesis/clock-{skewed_s}",
        Case("substantial", ("queue", "ledger-slack"), repeat=1, skewed_s=skewed_s,
             delay_ms=20, jitter_ms=20),
        {"repeat": 1},
    )
    for skewed_s in (0, 3600)
}  # fmt: skip


SLIPS = (
    ("listing 3.1", "caps each refill, not the bucket", "caps the bucket; `literal` is as printed"),
    ("listing 4.1", "removes elements whose death is ahead", "removes those whose death has come"),
    ("listing 4.2", "keeps two elements of one birth in delta states", "keeps the larger death"),
    ("listing 4.5", "compares an interval as if it were a frequency", "a short interval triggers"),
    ("4.2.1 and 4.2.2", "refill at any request, or only at approved ones", "at any request"),
    (
        "4.2.2",
        "requests of one millisecond are negligible",
        "5 % are lost at 100/s, 37 % at 1,000/s",
    ),
    ("4.3.4", "who is never limited sends slightly faster than the refill", "slightly more slowly"),
    ("5.2", "798 % more, and five like it", "a ratio of 7.98: 698 % more"),
    ("5.3", "0.0025 % more bytes", "about equal"),
)
"""Where the thesis slips or is open, and the reading here (tests/unit/test_buckets.py)."""


def _same(results: Results, bucket: str) -> float | None:
    """1 if a wrong clock changed no decision, 0 if it did."""
    digests = [
        run["decisions"] for one in CLOCKS.values() for run in results.runs(one.name, bucket)
    ]
    return float(digests[0] == digests[1]) if len(digests) == len(CLOCKS) else None


def _capacities(results: Results, bucket: str) -> float | None:
    """The burst after 2 c requests at half the rate, c: what the true bucket lacked, and c."""
    excess = highest(results, F.name, bucket, key("excess"))
    return None if excess is None else 1 + excess / F.case.capacity


def evaluate(results: Results) -> Finding:
    """Check the long-run factor, the burst, and that clocks do not matter to the ledger."""
    name = E.name
    factor = {bucket: mean(results, name, bucket, long_run) for bucket in E.case.buckets}
    checks = [
        at_least("E, 1,000/s at a limit of 100/s: long-run factor of the queue", factor["queue"],
                 9.0),
        Check("E: long-run factor of the counter", factor["counter"], least=0.9, most=1.4),
        at_most("E: long-run factor of the queue with frequency analysis",
                factor["queue-frequency"], 1.1),
        at_most("E: long-run factor of ledger and slack", factor["ledger-slack"], 1.02),
        at_most("E: the same over the whole run, its begin included",
                mean(results, name, "ledger-slack",
                     lambda run: run["admitted"] / run["central_admitted"]), 1.02),
        at_least("F: burst of the counter as printed, c", _capacities(results, "counter-literal"),
                 2.9),
        *(at_most(f"F: burst of the {title(bucket)}, c", _capacities(results, bucket), 1.0)
          for bucket in ("counter", "queue", "ledger")),
        at_most("G: bytes of ledger and slack over the queue's, a million keys",
                over(results, G.name, "ledger-slack", "queue", "bytes"), 1.0),
        at_least("Ledger and slack, a clock an hour ahead: decisions are the same (1: yes)",
                 _same(results, "ledger-slack"), 1.0),
        at_most("Queue, a clock an hour ahead: decisions are the same (1: yes)",
                _same(results, "queue"), 0.0),
    ]  # fmt: skip
    shown = ", ".join(f"{title(one)} {text(value)}" for one, value in factor.items())
    rows = [
        [f"{label}, {title(bucket)}", *measures(results, series.name, bucket)]
        for label, series in (("E", E), ("F", F), ("G", G)) for bucket in series.case.buckets
    ]  # fmt: skip
    return Finding(
        checks,
        f"long-run factor at ten times the limit: {shown}",
        "In E, elements of the queue die before their limiter's round. A prototype that drops the "
        "dead before it sends let the user have nine times the limit for ever. By the text (5.4) "
        "some of the dead still travel, and are dated again at the receiver. So the queue admits "
        "far too much at first (its peak excess), and too little later.",
        tables=[
            Table("Data sets E, F and G", ["data, bucket", *MEASURES], rows),
            Table("Slips of the thesis", ["where", "the text", "here"], SLIPS),
        ],
    )


@chart("thesis-e", 8, 3.4, columns=2)
def draw(results: Results, axes: Any) -> bool:
    """Rejections and bytes over time at a high rate."""
    drawn = lines(axes[0], results, E.name, E.case.buckets,
                  lambda run: [ours for ours, _ in run["curve"]])  # fmt: skip
    axes[0].set_ylabel("Rejections")
    lines(axes[1], results, E.name, E.case.buckets,
          lambda run: [sent / 1e3 for sent in run["sent"]])  # fmt: skip
    axes[1].set_ylabel("Sent (kB/s)")
    return drawn


FIGURE = Figure(
    "thesis-open",
    "Data sets E, F and G: what is left open",
    "the gossip interval and the number of nodes have to be set with care; clocks are synchronised;"
    " requests of one millisecond are unlikely",
    [E, F, G, *CLOCKS.values()],
    evaluate,
    draw,
    page=PAGE,
    source=SOURCE,
)
