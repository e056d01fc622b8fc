"""What a fleet admits too much: by bucket, size, interval, loss, and what a user asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from testbed.harness.draw import chart
from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table
from testbed.harness.results import Results, text
from testbed.plot import COLOURS
from testbed.reproduce.thesis.measures import (
    PAGE,
    SOURCE,
    at_most,
    beyond_unknown,
    highest,
    key,
    long_run,
    mean,
    spread,
    title,
    unknown,
)
from testbed.requests.case import Case
from testbed.requests.series import RequestSeries

_BUCKETS = ("counter", "queue", "queue-frequency", "ledger-slack")
_SIZES = (3, 10, 30, 100)
_REPEAT_MS = 600
"""Two rounds: by then an acknowledgement had its turn."""
_RATE = 10
"""Tokens/s, of a capacity of 100."""
CASE = Case(
    "steady", _BUCKETS, seconds=20, capacity=100, rate=_RATE, per_s=1, load=10 * _RATE,
    delay_ms=20, jitter_ms=20,
)  # fmt: skip
_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "300 ms, 10 r": {},
    "300 ms, 2 r": {"load": 2 * _RATE},
    "300 ms, 100 r": {"load": 100 * _RATE},
    "100 ms, 10 r": {"interval_ms": 100},
    "300 ms, 10 r, 20 % lost": {"loss": 0.2, "duplicate": 0.1, "repeat_ms": _REPEAT_MS},
    "300 ms, 10 r, 40 % lost": {"loss": 0.4, "duplicate": 0.2, "repeat_ms": _REPEAT_MS},
}
"""Changes of the case by gossip interval, requests/s and loss."""
_REPEATS = {3: 5, 10: 5, 30: 3, 100: 1}
_CPU_S = {3: 0.2, 10: 0.4, 30: 2, 100: 15}
_CUT_MS = (2000, 12_000)


def _series(nodes: int, number: int, change: Mapping[str, Any]) -> RequestSeries:
    case = replace(CASE, nodes=nodes, repeat=_REPEATS[nodes], **change)
    quick = {"repeat": 1} if nodes < 30 else None
    return RequestSeries(f"thesis/overshoot-{nodes}-{number}", case, quick, _CPU_S[nodes])


SERIES = {
    (nodes, setting): _series(nodes, number, change)
    for nodes in _SIZES for number, (setting, change) in enumerate(_SETTINGS.items())
}  # fmt: skip
CUT = RequestSeries(
    "thesis/partition",
    replace(CASE, nodes=9, cut=_CUT_MS, repeat_ms=_REPEAT_MS, buckets=("counter", "ledger-slack")),
    {"repeat": 1}, 0.4,
)  # fmt: skip


def _in_flight(case: Case) -> float:
    """The most tokens that are admitted in the longest delay of a path."""
    expected = case.load * (case.delay_ms + case.jitter_ms) / 1000
    # Arrivals are random: as many as six standard deviations above their mean.
    return expected + 6 * math.sqrt(expected)


def _too_strict(case: Case) -> float:
    """The most tokens that a fold of cells and their late dates may be above the true level."""
    late_s = (2 * case.interval_ms + case.delay_ms + case.jitter_ms) / 1000
    # Ages are whole milliseconds, and a token that is refused lacks up to one.
    return case.rate_s * (late_s + 0.001)


def _cells(results: Results, series: RequestSeries, bucket: str) -> list[str]:
    name = series.name
    return [
        title(bucket), spread(results, name, bucket, key("excess")),
        text(unknown(results, name, bucket, "unknown"), 0),
        text(unknown(results, name, bucket, "unknown_s"), 2),
        text(mean(results, name, bucket, long_run), 3),
        text(highest(results, name, bucket, key("shortfall")), 2),
        text(mean(results, name, bucket, lambda run: run["bytes"] / 1000), 0),
    ]  # fmt: skip


def _checks(results: Results, where: str, series: RequestSeries) -> list[Check]:
    """Those of docs/replicated-buckets.md, of one fleet."""
    case, name = series.case, series.name
    checks = [
        at_most(f"{where}, {title(bucket)}: excess beyond the unknown tokens, worst run",
                beyond_unknown(results, name, bucket), 0.0)
        for bucket in ("counter", "ledger-slack")
    ]  # fmt: skip
    if not case.loss and not any(case.cut):
        excess = highest(results, name, "ledger-slack", key("excess"))
        checks += [
            at_most(f"{where}, ledger and slack: excess by what is under way, tokens", excess,
                    case.nodes * max(1.0, _in_flight(case))),
            at_most(f"{where}, ledger and slack: peak shortfall, tokens",
                    highest(results, name, "ledger-slack", key("shortfall")), _too_strict(case)),
        ]  # fmt: skip
    return checks


def evaluate(results: Results) -> Finding:
    """Check the bounds of docs/replicated-buckets.md."""
    checks: list[Check] = []
    rows = []
    for (nodes, setting), series in SERIES.items():
        checks += _checks(results, f"{nodes} limiters, {setting}", series)
        rows += [[f"{nodes}", setting, *_cells(results, series, bucket)] for bucket in _BUCKETS]
    checks += _checks(results, "9 limiters, a third cut off for 10 s", CUT)
    for bucket in CUT.case.buckets:
        lasts_s = (_CUT_MS[1] - _CUT_MS[0]) / 1000
        # Two sides; each is one fleet, whose own excess is that of the whole one without a cut.
        sides = CUT.case.capacity + CUT.case.rate_s * lasts_s
        own = highest(results, SERIES[10, "300 ms, 10 r"].name, bucket, key("excess"))
        checks.append(at_most(f"9 limiters, a third cut off for 10 s, {title(bucket)}: excess, "
                              "tokens", highest(results, CUT.name, bucket, key("excess")),
                              sides + 2 * (own or 0.0)))  # fmt: skip
        rows.append(["9", "300 ms, 10 r, cut in two for 10 s", *_cells(results, CUT, bucket)])
    shown = {
        bucket: text(highest(results, SERIES[30, "300 ms, 10 r"].name, bucket, key("excess")), 1)
        for bucket in _BUCKETS
    }
    return Finding(
        checks,
        "most tokens above c = 100 that 30 limiters admit to a user who asks for 10 times the "
        "rate: " + ", ".join(f"{title(bucket)} {value}" for bucket, value in shown.items()),
        "One user, c = 100 and r = 10/s; paths take 20 to 40 ms. With loss, half as many messages "
        "come twice, and unacknowledged news are told again after 600 ms, also those of the "
        "thesis' buckets. Elements of a queue do not say whose they are, so what its limiters do "
        "not know is not measured.",
        [Table("Peak excess, tokens (mean, least and most of the runs), and the tokens that a "
               "limiter did not know, which bound it",
               ["limiters", "interval, requests, loss", "bucket", "peak excess, tokens",
                "unknown at most", "news at most so old, s", "long-run factor",
                "peak shortfall, tokens", "sent, kB"], rows)],
    )  # fmt: skip


@chart("thesis-overshoot", 11, 3.4, columns=3)
def draw(results: Results, axes: Any) -> bool:
    """Excess by the size of the fleet, for each load without loss."""
    drawn = False
    for one, setting in zip(
        axes, ("300 ms, 2 r", "300 ms, 10 r", "300 ms, 10 r, 40 % lost"), strict=True
    ):
        for number, bucket in enumerate(_BUCKETS):
            points = [
                (nodes, excess) for nodes in _SIZES
                if (excess := highest(results, SERIES[nodes, setting].name, bucket, key("excess")))
                is not None
            ]  # fmt: skip
            if points:
                one.plot(*zip(*points, strict=True), "o-", color=COLOURS[number],
                         label=title(bucket))  # fmt: skip
                one.legend(fontsize=7)
                drawn = True
        one.set_title(setting)
        one.set_xscale("log")
        one.set_xticks(_SIZES, [str(nodes) for nodes in _SIZES])
        one.set_xlabel("Limiters")
    axes[0].set_ylabel("Peak excess (tokens of c = 100)")
    return drawn


FIGURE = Figure(
    "thesis-overshoot",
    "What a fleet admits too much",
    "nothing: delays, losses, deaths and other topologies are future work",
    [*SERIES.values(), CUT],
    evaluate,
    draw,
    page=PAGE,
    source=SOURCE,
)
