"""What the thesis leaves open: high rates, a slow user who bursts, many keys, one millisecond."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from testbed.harness.draw import chart
from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table, near
from testbed.harness.results import Results, text
from testbed.plot import COLOURS
from testbed.reproduce.thesis.measures import (
    MEASURES,
    PAGE,
    SOURCE,
    Run,
    at_least,
    at_most,
    cumulative,
    highest,
    key,
    lines,
    long_run,
    mean,
    measures,
    over,
    spread,
    title,
)
from testbed.requests.case import Case
from testbed.requests.series import RequestSeries

_FAST = Case("high-rate", ("counter",), capacity=100, rate=100, per_s=1, seconds=20)
E = RequestSeries(
    "thesis/high-rate",
    replace(_FAST, repeat=3, buckets=("counter", "queue-frequency", "ledger", "ledger-slack")),
    {"repeat": 1}, 8,
)  # fmt: skip
LONG = RequestSeries(
    "thesis/high-rate-long",
    replace(_FAST, repeat=3, seconds=200, buckets=("counter", "ledger")),
    {"repeat": 1}, 80,
)  # fmt: skip
"""Data set E for longer. Without urgent news, a fleet admits 8 c too much, and then refuses for
8 s: a half of 20 s has one such cycle, and a half of 200 s has eleven."""
READINGS = RequestSeries(
    "thesis/high-rate-queue", replace(_FAST, buckets=("queue", "queue-prompt")), {"repeat": 2}, 3
)
"""Data set E by the two readings of the queue (`testbed.requests.variants.PromptQueue`)."""
F = RequestSeries(
    "thesis/slow-then-burst",
    replace(_FAST, data="slow-then-burst", repeat=1, seconds=4, nodes=1,
            buckets=("counter", "counter-literal", "queue", "ledger")),
)  # fmt: skip
G = RequestSeries(
    "thesis/many-keys",
    Case("many-keys", ("counter", "queue", "ledger", "ledger-slack"), repeat=3, seconds=10,
         nodes=10, capacity=100, rate=10, per_s=1, load=500, quiet_s=60),
    None, 10,
)  # fmt: skip
_AT_ONCE = (20, 100, 1000)
_COUNT = 400
TOGETHER = {
    load: RequestSeries(
        f"thesis/one-millisecond-{load}",
        Case("one-millisecond", ("queue", "ledger", "ledger-slack"), repeat=3,
             seconds=_COUNT / load, capacity=2 * _COUNT, rate=1, per_s=1000, load=load),
        {"repeat": 1}, 3,
    )
    for load in _AT_ONCE
}  # fmt: skip
"""400 requests of one user, at so many a second, each at a limiter of its own."""


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
"""Where the thesis slips or is open, and the reading here (tests/unit/test_thesis_slips.py)."""


def _whole(run: Run) -> float:
    """Admitted over one bucket's, in the whole run."""
    return float(run["admitted"]) / float(run["central_admitted"])


def _begins_s(run: Run) -> float:
    """When the first request was refused; the end of the run if none was."""
    refused = [number for number, (ours, _) in enumerate(run["curve"]) if ours]
    return float(run["step_s"]) * (refused[0] if refused else len(run["curve"]))


def _forgotten(run: Run) -> float:
    """The part of what was admitted that no limiter counts in the end; the refill is next to 0."""
    return 1 - float(run["level"]) / float(run["admitted"])


def _expected(load: float) -> float:
    """The part of requests that share a millisecond with another: `1 - (1 - e^-x) / x`."""
    x = load / 1000
    return 1 - (1 - math.exp(-x)) / x


def _capacities(results: Results, bucket: str) -> float | None:
    """The burst after 2 c requests at half the rate, c: what the true bucket lacked, and c."""
    excess = highest(results, F.name, bucket, key("excess"))
    return None if excess is None else 1 + excess / F.case.capacity


def evaluate(results: Results) -> Finding:
    """Check the long-run factor, the burst, what is forgotten, and that garbage leaves."""
    name, both = E.name, READINGS.name
    factor = {
        bucket: mean(results, LONG.name if bucket in LONG.case.buckets else name, bucket, long_run)
        for bucket in E.case.buckets
    }
    checks = [
        at_least("E, 1,000/s at a limit of 100/s: factor of the queue, most of the runs",
                 highest(results, both, "queue", _whole), 9.0),
        at_least("E: factor of the queue that sends no dead, mean",
                 mean(results, both, "queue-prompt", _whole), 9.0),
        Check("E: long-run factor of the counter", factor["counter"], least=0.9, most=1.4),
        at_most("E: long-run factor of the queue with frequency analysis",
                factor["queue-frequency"], 1.1),
        at_most("E: long-run factor of ledger and slack", factor["ledger-slack"], 1.02),
        at_most("E: the same over the whole run, its begin included",
                mean(results, name, "ledger-slack", _whole), 1.02),
        at_least("F: burst of the counter as printed, c", _capacities(results, "counter-literal"),
                 2.9),
        *(at_most(f"F: burst of the {title(bucket)}, c", _capacities(results, bucket), 1.0)
          for bucket in ("counter", "queue", "ledger")),
        at_most("G: bytes of ledger and slack over the queue's, a million keys",
                over(results, G.name, "ledger-slack", "queue", "bytes"), 1.0),
        at_most("G: rows of ledger and slack that stay when all is drained",
                highest(results, G.name, "ledger-slack", key("left")), 0.0),
    ]  # fmt: skip
    for load, series in TOGETHER.items():
        checks += [
            near(f"{load}/s: part of the requests that the queue forgets",
                 mean(results, series.name, "queue", _forgotten), _expected(load), 0.05),
            at_most(f"{load}/s: the same, ledger and slack, worst run",
                    highest(results, series.name, "ledger-slack", _forgotten), 0.001),
        ]  # fmt: skip
    shown = ", ".join(f"{title(one)} {text(value)}" for one, value in factor.items())
    rows = [
        [f"{label}, {title(bucket)}", *measures(results, series.name, bucket)]
        for label, series in (("E", E), ("E", READINGS), ("E, 200 s", LONG), ("F", F), ("G", G))
        for bucket in series.case.buckets
    ]  # fmt: skip
    readings = [
        [title(bucket), spread(results, both, bucket, _whole, 2),
         spread(results, both, bucket, _begins_s), spread(results, both, bucket, long_run, 2)]
        for bucket in READINGS.case.buckets
    ]  # fmt: skip
    together = [
        [f"{load}/s", text(100 * _expected(load), 1), *(
            spread(results, series.name, bucket, lambda run: 100 * _forgotten(run))
            for bucket in ("queue", "ledger", "ledger-slack")
        )]
        for load, series in TOGETHER.items()
    ]  # fmt: skip
    garbage = [
        [title(bucket), text(mean(results, G.name, bucket, key("users")), 0),
         text(mean(results, G.name, bucket, key("left")), 0)] for bucket in G.case.buckets
    ]  # fmt: skip
    return Finding(
        checks,
        f"long-run factor at ten times the limit: {shown}; of the queue over the whole run "
        f"{spread(results, both, 'queue', _whole, 2)}, and if it sends no dead "
        f"{spread(results, both, 'queue-prompt', _whole, 2)}",
        "In E, an element of the queue dies after 10 ms, long before its limiter's round, so no "
        "limiter knows of another and all is admitted. By the text (4.2.1, 5.4) the dead stay in "
        "delta states until a message comes, so some still travel. Where enough of them meet they "
        "are dated again, live, and spread: then, after a time that is pure chance, the queue "
        "begins to refuse, and refuses too much for a while. A queue that drops the dead before "
        "it sends never begins. Without urgent news, a fleet admits 8 c too much, and then refuses "
        "for 8 s; so the factors of counter and ledger are those of 200 s. In G, ten limiters get "
        "500 requests/s.",
        tables=[
            Table("Data set E by the two readings of the queue", ["queue", "admitted over one "
                  "bucket's", "first refusal after, s (20: none)", "the same in the second half"],
                  readings),
            Table("Data sets E, F and G", ["data, bucket", *MEASURES], rows),
            Table("Requests of one millisecond: part of them that is forgotten, %",
                  ["at once", "expected of the queue", *map(title, ("queue", "ledger",
                   "ledger-slack"))], together),
            Table("Garbage in G: rows of ten limiters a minute after the last message",
                  ["bucket", "users", "rows"], garbage),
            Table("Slips of the thesis", ["where", "the text", "here"], SLIPS),
        ],
    )  # fmt: skip


@chart("thesis-e", 11, 3.4, columns=3)
def draw(results: Results, axes: Any) -> bool:
    """Rejections and bytes over time at a high rate."""
    drawn = lines(axes[0], results, E.name, E.case.buckets, cumulative)
    axes[0].set_ylabel("Rejections")
    lines(axes[1], results, E.name, E.case.buckets,
          lambda run: [sent / 1e3 for sent in run["sent"]])  # fmt: skip
    axes[1].set_ylabel("Sent (kB/s)")
    for number, bucket in enumerate(READINGS.case.buckets):
        for run in results.runs(READINGS.name, bucket):
            axes[2].plot(cumulative(run), color=COLOURS[number], alpha=0.6)
    axes[2].set_title("the queue's runs, by both readings")
    axes[2].set_xlabel("Time (s)")
    return drawn


FIGURE = Figure(
    "thesis-open",
    "Data sets E, F and G: high rates, bursts, many keys",
    "the gossip interval and the number of nodes have to be set with care; requests of one "
    "millisecond are unlikely",
    [E, READINGS, LONG, F, G, *TOGETHER.values()],
    evaluate,
    draw,
    page=PAGE,
    source=SOURCE,
)
