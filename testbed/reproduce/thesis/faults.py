"""What the thesis assumes away: wrong clocks, delays, losses, and limiters that return (5.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from testbed.harness.draw import chart
from testbed.harness.figure import Figure
from testbed.harness.finding import Finding, Table
from testbed.harness.results import Results, difference, text
from testbed.reproduce.thesis.just_above import CENTRAL
from testbed.reproduce.thesis.measures import (
    PAGE,
    SOURCE,
    at_least,
    at_most,
    bars,
    beyond_unknown,
    by_repetition,
    highest,
    key,
    mean,
    precision,
    spread,
    title,
    unknown,
)
from testbed.requests.case import Case
from testbed.requests.series import RequestSeries

_BUCKETS = ("counter", "queue", "queue-frequency", "ledger-slack")
_BASE = Case("substantial", _BUCKETS, nodes=10, delay_ms=30)
"""Delays are no chance, so that runs with a wrong clock differ by nothing but that."""
_REPEAT_MS = 600
"""Two rounds: by then an acknowledgement had its turn."""
_RETURN_MS = 22_000
"""The bucket has been empty since the first ON time, and the third has begun."""
_CASES: Mapping[str, Mapping[str, Any]] = {
    "no fault": {},
    "a clock is an hour ahead": {"skewed_s": 3600},
    "a clock runs 0.05 % too fast": {"drift_ppm": 500},
    "paths take 250 ms": {"delay_ms": 250},
    "messages pass each other (1 s)": {"jitter_ms": 1000},
    "half of the messages come twice": {"duplicate": 0.5},
    "20 % lost, as in the thesis": {"loss": 0.2},
    "40 % lost, as in the thesis": {"loss": 0.4},
    "40 % lost, told again": {"loss": 0.4, "repeat_ms": _REPEAT_MS},
    "all of it, told again": {"loss": 0.4, "duplicate": 0.5, "jitter_ms": 1000,
                              "skewed_s": 3600, "drift_ppm": 500, "repeat_ms": _REPEAT_MS},
    "a third returns, unnoticed": {"restart_ms": _RETURN_MS, "copies": False},
    "a third returns, is told all": {"restart_ms": _RETURN_MS},
}  # fmt: skip
"""Changes of the base by what goes wrong."""
_AGREEING = ("no fault", "paths take 250 ms", "messages pass each other (1 s)",
             "half of the messages come twice", "40 % lost, told again", "all of it, told again",
             "a clock is an hour ahead", "a clock runs 0.05 % too fast")  # fmt: skip
"""Cases in which all news arrive."""
SERIES = {
    case: RequestSeries(
        f"thesis/fault-{number}", replace(_BASE, **change), {"repeat": 2}, 0.4,
    )
    for number, (case, change) in enumerate(_CASES.items())
}  # fmt: skip
_DELAYED = {
    delay_ms: RequestSeries(
        f"thesis/just-above-200-delay-{delay_ms}",
        Case("just-above", ("counter", "queue", "ledger-slack"), seconds=100, capacity=5, rate=1,
             per_s=1, interval_ms=200, delay_ms=delay_ms),
        {"repeat": 2}, 0.4,
    )
    for delay_ms in (0, 250)
}  # fmt: skip
"""The thesis' example of a delay that matters (5.5), with data set D."""


def _unlike(results: Results, case: str, bucket: str) -> float | None:
    """The part of the runs whose decisions are not those without the fault, all of them alike."""
    pairs = by_repetition(results, SERIES["no fault"].name, SERIES[case].name, bucket)
    if not pairs:
        return None
    return sum(bool(one["decisions"] != other["decisions"]) for one, other in pairs) / len(pairs)


def _moved(results: Results, case: str, bucket: str) -> float | None:
    """How many tokens more or fewer a fault lets pass, in the worst run."""
    pairs = by_repetition(results, SERIES["no fault"].name, SERIES[case].name, bucket)
    moved = [abs(float(one["admitted"]) - float(other["admitted"])) for one, other in pairs]
    return max(moved, default=None)


def _late_s(results: Results, case: str, bucket: str) -> float | None:
    """How long limiters that returned count less than half; the rest of the run if to its end."""
    rest_s = (_BASE.seconds * 1000 - _RETURN_MS) / 1000

    def of_run(run: Mapping[str, Any]) -> float:
        return rest_s if run["caught_up_s"] is None else float(run["caught_up_s"])

    return mean(results, SERIES[case].name, bucket, of_run)


def evaluate(results: Results) -> Finding:
    """Check that clocks do not matter, that all agree in the end, and the bound."""
    hour, fast = "a clock is an hour ahead", "a clock runs 0.05 % too fast"
    checks = [
        at_most(f"{hour}: ledger and slack, part of the runs with other decisions",
                _unlike(results, hour, "ledger-slack"), 0.0),
        at_least(f"{hour}: queue, the same", _unlike(results, hour, "queue"), 1.0),
        at_most(f"{fast}: ledger and slack, admitted more or less, tokens, worst run",
                _moved(results, fast, "ledger-slack"), 1.0),
    ]  # fmt: skip
    for case, series in SERIES.items():
        # The counter sends times, so its bound needs right clocks.
        wrong = series.case.skewed_s or series.case.drift_ppm
        checks += [
            at_most(f"{case}: {title(bucket)}, excess beyond the unknown tokens, worst run",
                    beyond_unknown(results, series.name, bucket), 0.0)
            for bucket in ("ledger-slack", *(() if wrong else ("counter",)))
        ]  # fmt: skip
    for case in _AGREEING:
        name = SERIES[case].name
        checks += [
            at_most(f"{case}: ledger and slack, levels apart in the end, tokens",
                    highest(results, name, "ledger-slack", key("apart")), 1.0),
            at_least(f"{case}: ledger and slack, points of precision above the counter",
                     difference(*(mean(results, name, bucket, precision)
                                  for bucket in ("ledger-slack", "counter"))), 0.0),
        ]  # fmt: skip
    copied, alone = (_late_s(results, one, "ledger-slack") for one in tuple(_CASES)[:-3:-1])
    checks += [
        at_most("A third returns: ledger and slack, until it counts half, told all, s", copied,
                1.0),
        at_least("A third returns: the same, unnoticed, s", alone, 1.0),
        at_least("A third returns, unnoticed: counter and queue, until it counts half, difference "
                 "in s", difference(_late_s(results, "a third returns, unnoticed", "queue"),
                                    _late_s(results, "a third returns, unnoticed", "counter")),
                 0.0),
        at_least("Delays hurt the queue more than the counter (5.5): rejections in D, difference",
                 difference(_hurt(results, "queue"), _hurt(results, "counter")), 0.0),
    ]  # fmt: skip
    rows = [
        [f"{case}, {title(bucket)}", spread(results, series.name, bucket, precision),
         text(highest(results, series.name, bucket, key("excess")), 1),
         text(unknown(results, series.name, bucket, "unknown"), 0),
         text(unknown(results, series.name, bucket, "unknown_s"), 1),
         text(highest(results, series.name, bucket, key("shortfall")), 1),
         text(highest(results, series.name, bucket, key("apart")), 1),
         text(_late_s(results, case, bucket) if series.case.restart_ms else None, 1),
         text(_unlike(results, case, bucket)),
         text(mean(results, series.name, bucket, lambda run: run["bytes"] / 1000), 0)]
        for case, series in SERIES.items() for bucket in _BUCKETS
    ]  # fmt: skip
    delays = [
        [title(bucket), *(
            cell for series in _DELAYED.values() for cell in (
                spread(results, series.name, bucket, key("rejected")),
                text(highest(results, series.name, bucket, key("excess")), 1),
            )
        )]
        for bucket in ("counter", "queue", "ledger-slack")
    ]  # fmt: skip
    all_of_it = SERIES["all of it, told again"].name
    return Finding(
        checks,
        "peak excess when everything goes wrong at once, tokens of c = 300: " + ", ".join(
            f"{title(one)} {text(highest(results, all_of_it, one, key('excess')), 1)}"
            for one in _BUCKETS
        ) + "; limiters that return and are told all count half of the level after "
        f"{text(copied, 1)} s",
        "Ten limiters; paths take 30 ms where nothing else is said. A limiter whose clock runs "
        "0.05 % too fast refills its bucket so much faster, so a request at the right moment is "
        "decided otherwise: at most c x 0.05 % = 0.15 tokens are at stake. The thesis has no "
        "acknowledgements. Its buckets pass on what they hear, so others make up for a lost "
        "message; slack tells each limiter once, and needs them. A limiter that returns learns "
        "the counter with the first message of it, and the queue one element at a time.",
        [Table("Data set B, substantial; mean, least and most, or the largest of the runs",
               ["fault, bucket", "precision, %", "peak excess, tokens", "unknown at most, tokens",
                "news at most so old, s", "peak shortfall, tokens", "levels apart, tokens",
                "counts half after, s", "runs that decide otherwise", "sent, kB"], rows),
         Table("Data set D, gossip each 200 ms; one bucket refuses 8", [
             "bucket", "rejected", "peak excess, tokens", "with 250 ms delay: rejected",
             "peak excess, tokens"], delays)],
    )  # fmt: skip


def _hurt(results: Results, bucket: str) -> float | None:
    """How much farther a delay takes the rejections in D from one bucket's, requests."""
    before, after = (
        None if (found := mean(results, series.name, bucket, key("rejected"))) is None
        else abs(found - CENTRAL) for series in _DELAYED.values()
    )  # fmt: skip
    return difference(after, before)


@chart("thesis-faults", 9, 4.4)
def draw(results: Results, axes: Any) -> bool:
    """Peak excess by what goes wrong."""
    drawn = bars(axes, results, {case: series.name for case, series in SERIES.items()}, _BUCKETS)
    axes.set_xlabel("Peak excess (tokens of c = 300)")
    return drawn


FIGURE = Figure(
    "thesis-faults",
    "Clocks, delays, losses and limiters that return",
    "clocks are synchronised, nothing is lost or delayed, and nobody dies; delays would hurt the "
    "queue more than the counter, and a node that returns would catch up faster with the counter",
    [*SERIES.values(), *_DELAYED.values()],
    evaluate,
    draw,
    page=PAGE,
    source=SOURCE,
)
