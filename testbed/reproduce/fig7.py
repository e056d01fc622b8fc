"""Figure 7: flows with a bottleneck elsewhere, and one without.

Three flows are at one limiter, seven at the other. At 15 s the seven meet a bottleneck of 2 Mbit/s,
and the three should get the other 8. At 31 s an unbottlenecked flow joins the seven. Their limiter
should then get 4 Mbit/s: 2 for the seven, 2 for the new flow.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, takewhile

from drld import units
from testbed.harness.draw import first_runs
from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, near
from testbed.harness.results import Results, Run, forwarded, goodput, text
from testbed.harness.series import Series
from testbed.reproduce.baseline import FPS, NAMES

_WINDOW_S, _STEP_S = 3.0, 0.2
_TOLERANCE_MBIT = 0.5
_PATIENCE_S = 5.0
ALLOCATORS = (*FPS, "ctb")

BOTTLENECK = Series(
    "bottleneck",
    "bottleneck",
    full={"allocators": [*ALLOCATORS], "repeat": 5},
    quick={"seconds": 44, "repeat": 1},
)


def _changes(results: Results) -> tuple[float, float]:
    """The times of the bottleneck and of the join, s."""
    definition = results.by_series[BOTTLENECK.name]["definition"]
    (event,) = definition["events"]
    start = max(units.parse_duration(group.get("start", "0s")) for group in definition["flows"])
    return units.parse_duration(event["at"]) / 1e9, start / 1e9


def off_target(
    run: Run, targets_mbit: Sequence[float], begin_s: float, end_s: float
) -> list[tuple[float, float]]:
    """(start, largest distance of a limiter from its target in Mbit/s) for each 3 s mean."""
    starts = takewhile(
        lambda start_s: start_s + _WINDOW_S <= end_s + 1e-9,
        (begin_s + index * _STEP_S for index in count()),
    )
    return [
        (
            start_s,
            max(
                abs(forwarded(run, limiter, start_s, start_s + _WINDOW_S) / 1e6 - target)
                for limiter, target in zip(run["series"], targets_mbit, strict=True)
            ),
        )
        for start_s in starts
    ]


def settled_after(distances: Sequence[tuple[float, float]]) -> float:
    """Seconds from the first window to the first that is near enough; infinite without one."""
    for start_s, distance in distances:
        if distance <= _TOLERANCE_MBIT:
            return start_s - distances[0][0]
    return float("inf")


def evaluate(results: Results) -> Finding:
    """Check how soon each split is reached, and whether it lasts."""
    checks: list[Check] = []
    said = []
    change = _changes(results) if BOTTLENECK.name in results.by_series else (15.0, 31.0)
    for allocator in results.wanted(BOTTLENECK.name, FPS):
        name = NAMES[allocator]
        checks.append(near(f"{name}: aggregate over the limit",
                           results.used(BOTTLENECK.name, allocator), 1.0, 0.03))  # fmt: skip
        times = []
        for what, targets, begin_s, end_s in (
            ("8 : 2 once the seven are bottlenecked", (8.0, 2.0), *change),
            ("6 : 4 once an unbottlenecked flow joins them", (6.0, 4.0), change[1], None),
        ):
            seen = [
                off_target(run, targets, begin_s, end_s or run["seconds"])
                for run in results.runs(BOTTLENECK.name, allocator)
            ]
            after = _middle([settled_after(distances) for distances in seen])
            later = _middle(
                [
                    _middle([off for start_s, off in run if start_s >= begin_s + _PATIENCE_S])
                    for run in seen
                ]
            )
            checks += [
                Check(f"{name}: {what}, 3 s means within 0.5 Mbit/s, after", after, "s",
                      most=_PATIENCE_S),
                Check(f"{name}: {what}, distance of the 3 s means from 5 s on, median", later,
                      "Mbit/s", most=_TOLERANCE_MBIT),
            ]  # fmt: skip
            times.append(text(after, 1))
        joined = results.median(BOTTLENECK.name, allocator, lambda run: _joined(run, change[1]))
        checks.append(near(f"{name}: goodput of the flow that joined, from 8 s after (due: 2)",
                           joined, 2.0, _TOLERANCE_MBIT, "Mbit/s"))  # fmt: skip
        said.append(f"{name}: 8 : 2 after {times[0]} s, 6 : 4 after {times[1]} s")
    return Finding(
        checks,
        "; ".join(said),
        f"While the seven are bottlenecked, FPS forwards {text(_between(results, change), 3)} of "
        "the limit: a limiter with only bottlenecked flows keeps more than it uses, so that they "
        "can grow.",
    )


def _between(results: Results, change: tuple[float, float]) -> float | None:
    """FPS's aggregate over the limit between the two changes, once it has settled."""
    limit_bps, since_s = results.limit_bps(BOTTLENECK.name), change[0] + _PATIENCE_S

    def of_run(run: Run) -> float:
        return sum(forwarded(run, name, since_s, change[1]) for name in run["series"]) / limit_bps

    return results.median(BOTTLENECK.name, "fps", of_run)


def _joined(run: Run, joined_s: float) -> float:
    """Goodput of the flow that joined, Mbit/s, from the time at which the paper's has its share."""
    (flow,) = (flow for flow in run["flows"] if flow["start_s"] >= joined_s)
    return goodput(flow, run["flow_step_s"], joined_s + 8.0, run["seconds"]) / 1e6


def _middle(values: Sequence[float | None]) -> float | None:
    known = sorted(value for value in values if value is not None)
    # The upper of two in the middle: the lower one would hide a run that never settled.
    return known[len(known) // 2] if known else None


FIGURE = Figure(
    "fig7",
    "Figure 7: bottlenecked flows",
    "At 15 s the seven flows meet a bottleneck of 2 Mbit/s, and FPS quickly gives the other 8 to "
    "the three; at 31 s an unbottlenecked flow joins the seven, whose limiter has 4 Mbit/s by 39 s",
    [BOTTLENECK],
    evaluate,
    first_runs("fig7", {NAMES[name]: (BOTTLENECK.name, name) for name in ALLOCATORS}),
)
