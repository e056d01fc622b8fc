"""Figure 6: a flow joins at an unused limiter every 10 s until there are five, then they leave.

With long estimate intervals GRD loses track of the flows. FPS, which shares the numbers of flows,
does not. The paper does not state the order of departures; here the oldest flow leaves first.

A phase is the time between two changes, without the time that TCP needs to settle. In each phase
every flow's goodput in 1 s windows is compared with its fair share. `variation` is the standard
deviation of the windows, and `distance` is the distance of their mean. Both are divided by the fair
share, and averaged over flows and phases.

A bucket of 75 kB is too small for one Reno flow to use 10 Mbit/s. The flow's window goes from 2/3
to 4/3 of the bandwidth-delay product B = 50 kB, a segment more each round trip (Linux counts
segments, so delayed acknowledgements slow nothing). The bytes above B have to fit into the bucket:
B / 6 a round trip for B / 3 MSS round trips, so B^2 / 18 MSS = 93 kB. The loss and its recovery
need more: one simulated flow forwards 0.91 of the limit from 75 kB, 0.93 from 93, 0.98 from 125 and
1.00 from 150 (FPS, 500 ms). So FPS and CTB are also run with 150 kB.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator
from typing import Any

from testbed.harness.draw import first_runs
from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table, near
from testbed.harness.results import (
    OfRun,
    Results,
    Run,
    goodput,
    ratio,
    spread,
    text,
    texts,
    totals,
)
from testbed.harness.results import windows as windows_of
from testbed.harness.series import Series
from testbed.reproduce.baseline import FPS, NAMES
from testbed.result import GOODPUT_SHARE

_LIMITERS = 5
_FIRST_S, _QUICK_STEP_S = 5, 4
_SETTLING = 0.4
"""The part of the time between two changes that TCP needs to settle."""
_WINDOW_S = 1.0
_OVER = 1.10


def _flows(step_s: int) -> list[dict[str, Any]]:
    """The experiment's groups with another time between changes."""
    return [
        {
            "limiter": f"l{number + 1}",
            "count": 1,
            "rtt": "40ms",
            "start": f"{_FIRST_S + number * step_s}s",
            "end": f"{_FIRST_S + (number + _LIMITERS) * step_s}s",
        }
        for number in range(_LIMITERS)
    ]


_QUICK = {
    "seconds": _FIRST_S + 2 * _LIMITERS * _QUICK_STEP_S - _QUICK_STEP_S,
    "flows": _flows(_QUICK_STEP_S),
    "repeat": 1,
}
FAST = Series("dynamics-50ms", "dynamics", full={"allocators": ["ctb", "grd"]}, quick=_QUICK)
SLOW = Series(
    "dynamics-500ms",
    "dynamics",
    full={"allocators": ["grd", *FPS]},
    quick=_QUICK,
    settings=("gossip.interval=500ms",),
)
_DEEP = ("limit.burst=150kB",)
DEEP_CTB = Series("dynamics-deep-ctb", "dynamics", full={"allocators": ["ctb"]}, quick=_QUICK,
                  settings=_DEEP)  # fmt: skip
DEEP_FPS = Series("dynamics-deep-fps", "dynamics", full={"allocators": [*FPS]}, quick=_QUICK,
                  settings=(*SLOW.settings, *_DEEP))  # fmt: skip
_PANELS = {
    "CTB": (FAST.name, "ctb"),
    "GRD, 500 ms": (SLOW.name, "grd"),
    "GRD, 50 ms": (FAST.name, "grd"),
    **{f"{NAMES[name]}, 500 ms": (SLOW.name, name) for name in FPS},
}
"""Title, series and allocator, in the paper's order."""
_DEEPER = {
    "CTB, 150 kB": (DEEP_CTB.name, "ctb"),
    **{f"{NAMES[name]}, 500 ms, 150 kB": (DEEP_FPS.name, name) for name in FPS},
}


def phases(run: Run) -> Iterator[tuple[float, float, list[Any]]]:
    """(begin, end, live flows) of each phase."""
    times = {round(flow[key]) for flow in run["flows"] for key in ("start_s", "end_s")}
    for begin, end in itertools.pairwise(sorted({*times, round(run["seconds"])})):
        settled = begin + _SETTLING * (end - begin)
        alive = [flow for flow in run["flows"]
                 if round(flow["start_s"]) <= begin and round(flow["end_s"]) >= end]  # fmt: skip
        if alive:
            yield settled, float(end), alive


def variation(run: Run, limit_bps: float) -> float:
    """The variation of a flow's rate, over its fair share."""
    return statistics.fmean(
        spread(
            windows_of(flow["goodput_series_bps"], run["flow_step_s"], _WINDOW_S, begin_s, end_s)
        )
        / (limit_bps * GOODPUT_SHARE / len(alive))
        for begin_s, end_s, alive in phases(run)
        for flow in alive
    )


def distance(run: Run, limit_bps: float) -> float:
    """A flow's distance from its fair share, over the fair share."""
    shares = [
        (goodput(flow, run["flow_step_s"], begin_s, end_s), limit_bps * GOODPUT_SHARE / len(alive))
        for begin_s, end_s, alive in phases(run)
        for flow in alive
    ]
    return statistics.fmean(abs(rate - fair) / fair for rate, fair in shares)


def over(run: Run, limit_bps: float) -> float:
    """Part of the 1 s windows with a total above 1.10 of the limit."""
    rates = [
        rate for begin_s, end_s, _ in phases(run) for rate in totals(run, _WINDOW_S, begin_s, end_s)
    ]
    return sum(rate > _OVER * limit_bps for rate in rates) / len(rates)


def _within(limit_bps: float, of_run: Callable[[Run, float], float]) -> OfRun:
    return lambda run: of_run(run, limit_bps)


def evaluate(results: Results) -> Finding:
    """Check how steady each allocator is, and whether it holds the limit."""

    def each(of_run: Callable[[Run, float], float]) -> dict[str, float | None]:
        return {
            name: results.median(series, allocator, _within(results.limit_bps(series), of_run))
            for name, (series, allocator) in shown.items()
        }

    shown = {**_PANELS, **_DEEPER}
    varies, away, too_much = each(variation), each(distance), each(over)
    used = {name: results.used(*where) for name, where in shown.items()}
    others = [varies[name] for name, (_, allocator) in _PANELS.items() if allocator not in FPS]
    steadiest = None if None in others else min(value for value in others if value is not None)
    checks = [
        Check("GRD with 500 ms is chaotic: its flows' variation over CTB's",
              ratio(varies["GRD, 500 ms"], varies["CTB"]), least=1.5),
        Check("GRD with 500 ms is chaotic: 1 s windows over 1.10 of the limit",
              too_much["GRD, 500 ms"], least=0.1),
        Check("GRD with 50 ms follows CTB: its flows' variation over CTB's",
              ratio(varies["GRD, 50 ms"], varies["CTB"]), most=1.25),
        Check("GRD with 50 ms is fairer than CTB: distance from the fair share over CTB's",
              ratio(away["GRD, 50 ms"], away["CTB"]), most=1.0),
        *(
            check
            for name in map(NAMES.__getitem__, FPS)
            for panel in [f"{name}, 500 ms"]
            for check in (
                Check(f"{name} with 500 ms is the steadiest: its variation over the least of the "
                      "others", ratio(varies[panel], steadiest), most=1.0),
                Check(f"{name} with 500 ms: 1 s windows over 1.10 of the limit", too_much[panel],
                      most=0.02),
                Check(f"{name} with 500 ms: distance of a flow from its fair share", away[panel],
                      most=0.1),
                near(f"{name} with 500 ms: aggregate over the limit", used[panel], 1.0, 0.03),
                Check(f"{name} with 500 ms: aggregate over CTB's",
                      ratio(used[panel], used["CTB"]), least=0.97),
                near(f"{name} with 500 ms and the depth that one Reno flow needs: aggregate over "
                     "the limit", used[f"{panel}, 150 kB"], 1.0, 0.03),
            )
        ),
    ]  # fmt: skip
    rows = [[name, *texts(one[name] for one in (varies, away, too_much, used))] for name in shown]
    header = ["", "variation", "distance from the fair share", "1 s windows over 1.10",
              "aggregate / limit"]  # fmt: skip
    ours = "variation of a flow's rate, of its fair share: " + ", ".join(
        f"{name} {text(varies[name], 3)}" for name in _PANELS
    )
    return Finding(
        checks,
        ours,
        "One Reno flow fills 10 Mbit/s from a bucket of 150 kB, but not from 75 kB. Under FPS "
        "each flow is always alone in its bucket, under CTB only at both ends. Under fair, the "
        "first flow of the idle fleet has its static share for the age of news, 2.5 s. Until then "
        "its limiter cannot know whether all others wake up, and the bound on bytes counts that.",
        [Table("Medians over the runs", header, rows)],
    )


FIGURE = Figure(
    "fig6",
    "Figure 6: flows join and leave",
    "With estimate intervals of 500 ms GRD is chaotic, with 50 ms it follows CTB and is fairer; "
    "FPS with 500 ms varies least",
    [FAST, SLOW, DEEP_CTB, DEEP_FPS],
    evaluate,
    first_runs("fig6", _PANELS),
)
