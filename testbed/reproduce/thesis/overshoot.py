"""What a fleet admits too much: by bucket, size, interval, loss, and in a partition."""

from __future__ import annotations

import math
from dataclasses import replace

from matplotlib.axes import Axes

from testbed.harness.draw import chart
from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table
from testbed.harness.results import Results, text
from testbed.plot import COLOURS
from testbed.reproduce.thesis.measures import (
    PAGE,
    SOURCE,
    at_most,
    highest,
    key,
    mean,
    title,
)
from testbed.requests.case import Case, RequestSeries

_BUCKETS = ("counter", "queue", "ledger", "ledger-slack")
_SIZES = (3, 10, 30, 100)
_LOSSES = (0.0, 0.2, 0.4)
_INTERVALS = (100, 300)
_DELAY_MS, _JITTER_MS = 20, 20
_REPEAT_MS = 600
"""Two rounds: by then an acknowledgement had its turn."""
_CUT_MS = (2000, 32_000)
_CASE = Case("substantial", _BUCKETS, repeat=1, delay_ms=_DELAY_MS, jitter_ms=_JITTER_MS)
_CPU_S = {3: 0.3, 10: 0.5, 30: 2, 100: 20}


def _series(nodes: int, loss: float, interval_ms: int) -> RequestSeries:
    buckets = _BUCKETS if nodes < 100 else ("ledger-slack",)
    case = replace(
        _CASE, nodes=nodes, loss=loss, interval_ms=interval_ms, duplicate=loss / 2,
        repeat_ms=_REPEAT_MS if loss else 0, buckets=buckets,
    )  # fmt: skip
    name = f"thesis/overshoot-{nodes}-{interval_ms}-loss-{loss:g}"
    return RequestSeries(name, case, {} if nodes < 30 else None, _CPU_S[nodes])


SERIES = {
    (nodes, loss, interval): _series(nodes, loss, interval)
    for nodes in _SIZES for loss in _LOSSES for interval in _INTERVALS
    if (interval == 300 and nodes < 100) or not loss
}  # fmt: skip
CUT = RequestSeries(
    "thesis/partition",
    replace(_CASE, nodes=9, cut=_CUT_MS, repeat_ms=_REPEAT_MS, buckets=("ledger", "ledger-slack")),
)


def _in_flight(case: Case) -> float:
    """The most tokens that are admitted in the longest delay of a path, in a burst."""
    burst_s = 60 * case.duty / (3.2 * case.capacity)
    # Arrivals of the ON times are random: as many as six standard deviations above their mean.
    expected = (_DELAY_MS + _JITTER_MS) / 1000 / burst_s
    return expected + 6 * math.sqrt(expected)


def _cells(results: Results, series: RequestSeries, bucket: str) -> list[str]:
    excess = highest(results, series.name, bucket, key("excess"))
    return [
        title(bucket), text(excess, 1),
        text(None if excess is None else excess / series.case.capacity, 3),
        text(highest(results, series.name, bucket, key("shortfall")), 1),
        text(mean(results, series.name, bucket, lambda run: run["bytes"] / 1000), 0),
    ]  # fmt: skip


def evaluate(results: Results) -> Finding:
    """Check the bounds of docs/replicated-buckets.md."""
    checks: list[Check] = []
    rows = []
    for (nodes, loss, interval), series in SERIES.items():
        case = series.case
        for bucket in case.buckets:
            excess = highest(results, series.name, bucket, key("excess"))
            worst = (nodes - 1) * case.capacity + case.rate_s * 60
            checks.append(at_most(f"{nodes} limiters, {interval} ms, {loss:.0%} lost, "
                                  f"{title(bucket)}: excess, tokens", excess, worst))  # fmt: skip
            if bucket == "ledger-slack" and not loss:
                checks.append(at_most(f"{nodes} limiters, {interval} ms, {title(bucket)}: excess "
                                      "by what is under way, tokens",
                                      excess, nodes * max(1.0, _in_flight(case))))  # fmt: skip
            how = [f"{nodes}", f"{interval} ms", f"{loss:.0%}"]
            rows.append([*how, *_cells(results, series, bucket)])
    for bucket in CUT.case.buckets:
        excess = highest(results, CUT.name, bucket, key("excess"))
        two_sides = CUT.case.capacity + CUT.case.rate_s * 60
        checks.append(at_most(f"9 limiters, a third cut off for 30 s, {title(bucket)}: excess, "
                              "tokens", excess, two_sides))  # fmt: skip
        rows.append(["9", "300 ms", "cut in two", *_cells(results, CUT, bucket)])
    at_30 = {
        bucket: text(highest(results, SERIES[30, 0.0, 300].name, bucket, key("excess")), 1)
        for bucket in _BUCKETS
    }
    return Finding(
        checks,
        "excess of 30 limiters without loss, tokens of c = 300: "
        + ", ".join(f"{title(bucket)} {value}" for bucket, value in at_30.items()),
        "Paths take 20 to 40 ms. With loss, half as many datagrams are repeated, and unacknowledged"
        " news are told again after 600 ms, also those of the thesis' buckets.",
        [Table("Data set B, substantial, on 40 %",
               ["limiters", "interval", "lost", "bucket", "peak excess, tokens", "in c",
                "peak shortfall, tokens", "sent, kB"], rows)],
    )  # fmt: skip


@chart("thesis-overshoot", 6, 3.4)
def draw(results: Results, axes: Axes) -> bool:
    """Excess by the size of the fleet, without loss."""
    drawn = False
    for number, bucket in enumerate(_BUCKETS):
        points = [
            (nodes, excess) for nodes in _SIZES
            if (excess := highest(results, SERIES[nodes, 0.0, 300].name, bucket, key("excess")))
            is not None
        ]  # fmt: skip
        if points:
            axes.plot(*zip(*points, strict=True), "o-", color=COLOURS[number], label=title(bucket))
            drawn = True
    axes.set_xlabel("Limiters")
    axes.set_ylabel("Peak excess (tokens)")
    if drawn:
        axes.legend(fontsize=7)
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
