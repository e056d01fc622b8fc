"""Each allocator's reaction time (not in the paper): distributions of t80 over 20 or more events.

The events: a flow joins or leaves, flows are bottlenecked, the limit changes, a limiter dies. Five
limiters have flows with round trips of 40 ms. docs/testbed.md defines the measures. The runs are on
the testbed, and in the simulator for comparison.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib import rc_context

from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table
from testbed.harness.results import Results, t80_times, text
from testbed.harness.series import Series
from testbed.plot import STYLE, save
from testbed.plot_response import response_figure
from testbed.reproduce.baseline import FPS, NAMES

_ALLOCATORS = ("ctb", "gtb", "grd", *FPS)
_JUDGED = ("fps", "fair")
"""The goals are drld's own. So they are for its allocators, and only these run on the testbed."""
_QUICK_S = 28
_HIGHEST = 1.15
_NEVER = 0.05
"""The part of the flows that may miss their share until the next event."""
_PACE = 0.06


class _Kind(NamedTuple):
    """A kind of event, and its goal."""

    name: str
    what: str
    most_s: float
    repeat: int
    """The number of runs with 20 events."""


_KINDS = (
    _Kind("join", "a flow joins", 1.0, 3),
    _Kind("leave", "a flow leaves", 1.0, 3),
    _Kind("bottleneck", "others are bottlenecked", 5.0, 5),
    _Kind("limit", "the limit grows", 1.0, 4),
    _Kind("death", "a limiter dies, after its detection", 1.0, 5),
)


def _series(kind: _Kind, simulated: bool) -> Series:
    # A central limiter has no peer that could die.
    others = [name for name in _ALLOCATORS if kind.name != "death" or name != "ctb"]
    able = others if simulated else [*_JUDGED]
    return Series(
        f"responsiveness{'-sim' if simulated else ''}/{kind.name}",
        f"response-{kind.name}",
        full={"allocators": able, "repeat": kind.repeat},
        quick={"repeat": 1, "seconds": _QUICK_S},
        simulated=simulated,
        pace=_PACE,
    )


TESTBED = {kind.name: _series(kind, simulated=False) for kind in _KINDS}
SIMULATED = {kind.name: _series(kind, simulated=True) for kind in _KINDS}


def events(
    results: Results, series: Mapping[str, Series], kind: str, allocator: str
) -> list[Mapping[str, Any]]:
    """All events of a kind, in this kind's own experiment."""
    return [
        event
        for run in results.runs(series[kind].name, allocator)
        for event in run["events"]
        if event["kind"] == kind
    ]


def never(times: Sequence[float]) -> float | None:
    """The infinite part of the times; None without times."""
    return sum(time == math.inf for time in times) / len(times) if times else None


def _highest(found: Sequence[Mapping[str, Any]], key: str = "highest_1s_bps") -> float | None:
    """The highest second after any event, over the limit; None if it was not measured."""
    ratios = [event[key] / event["limit_bps"] for event in found if event.get(key) is not None]
    return max(ratios, default=None)


def evaluate(results: Results) -> Finding:
    """Check the medians of drld's allocators, and the limit."""
    judged = [_judge(results, allocator) for allocator in _JUDGED]
    return Finding(
        [check for checks, _ in judged for check in checks],
        "; ".join(said for _, said in judged),
        "Flows join limiters that were silent, or that have other long flows, but not limiters "
        "with a trickle of traffic.",
        tables=[
            _table("On the testbed", results, TESTBED),
            _table("In the simulator", results, SIMULATED),
        ],
    )


def _judge(results: Results, allocator: str) -> tuple[list[Check], str]:
    """The checks of an allocator on the testbed, and its values in a sentence."""
    name = NAMES[allocator]
    checks = []
    said = []
    highest: list[float] = []
    first: list[float] = []
    missed: list[float] = []
    for kind in _KINDS:
        found = events(results, TESTBED, kind.name, allocator)
        times = t80_times(found)
        median = statistics.median(times) if times else None
        checks.append(Check(f"{name}, {kind.what}: t80, median", median, "s", most=kind.most_s))
        said.append(f"{kind.name} {text(median)} s")
        for largest, of_kind in (
            (highest, _highest(found)), (first, _highest(found, "first_1s_bps")),
            (missed, never(times)),
        ):  # fmt: skip
            if of_kind is not None:
                largest.append(of_kind)
    checks += [
        Check(f"{name}: highest 1 s window over the limit, from 1 s after each event",
              max(highest, default=None), most=_HIGHEST),
        Check(f"{name}: highest 1 s window over the limit, begun within 1 s after an event",
              max(first, default=None), most=_HIGHEST),
        Check(f"{name}: part of the flows that never have 0.8 of their share, the largest of the "
              "kinds", max(missed, default=None), most=_NEVER),
    ]  # fmt: skip
    return checks, (
        f"{name}, medians: {', '.join(said)}; highest 1 s {text(max(highest, default=None))}, "
        f"in the first second after an event {text(max(first, default=None))}"
    )


def _table(title: str, results: Results, series: Mapping[str, Series]) -> Table:
    rows = []
    for kind in _KINDS:
        for allocator in _ALLOCATORS:
            found = events(results, series, kind.name, allocator)
            times = t80_times(found)
            if not times:
                continue
            nine_tenths = times[min(math.ceil(0.9 * len(times)), len(times)) - 1]
            rows.append(
                [
                    f"{kind.what}: {NAMES[allocator]}",
                    str(sum(bool(event["flows"]) for event in found)),
                    text(statistics.median(times)),
                    text(nine_tenths),
                    f"{never(times):.0%}",
                    text(_highest(found)),
                    text(_highest(found, "first_1s_bps")),
                ]
            )
    header = [
        "event",
        "events",
        "t80 s",
        "of 90 %",
        "never",
        "highest 1 s",
        "from the first second",
    ]
    return Table(title, header, rows)


def draw(results: Results, directory: Path) -> list[Path]:
    """The distributions on the testbed and in the simulator."""
    files = []
    for series, name in ((TESTBED, "responsiveness"), (SIMULATED, "responsiveness-simulated")):
        runs: list[dict[str, Any]] = [
            {
                "allocator": allocator,
                "events": events(results, series, kind.name, allocator),
            }
            for allocator in _ALLOCATORS
            for kind in _KINDS
        ]
        if any(event["flows"] for run in runs for event in run["events"]):
            with rc_context(STYLE):
                files.append(save(response_figure(runs), directory / f"{name}.png"))
    return files


FIGURE = Figure(
    "responsiveness",
    "Responsiveness: t80 after joins, departures, bottlenecks, new limits and deaths",
    "Not in the paper. Goals for FPS and fair, medians: join, leave and change of the limit "
    "within 1 s; bottleneck within 5 s; death within its detection plus 1 s; at most 5 % of "
    "the flows never; and no 1 s window above 1.15 of the limit, with windows from the first "
    "second apart",
    [*TESTBED.values(), *SIMULATED.values()],
    evaluate,
    draw,
)
