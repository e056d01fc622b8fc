"""`fair` at one limiter beside BC-PQP, a phantom queue for each flow (not in the paper).

Both police flows at one limiter without queues of packets. All flows of some cases of `any-traffic`
pass one limiter: a token bucket (CTB), one with `fair`, or `testbed.sim.phantom_queues`. A fleet
with `fair` stands beside them, since BC-PQP has none.
"""

from __future__ import annotations

import statistics
from dataclasses import replace

from matplotlib.axes import Axes

from testbed.experiment_file import build
from testbed.experiment_tables import PHANTOM_QUEUES
from testbed.harness.draw import chart
from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table
from testbed.harness.results import Results, difference, text
from testbed.plot import COLOURS, limit_line
from testbed.reproduce.baseline import NAMES
from testbed.studies.any_traffic_cases import CASES, Case
from testbed.studies.any_traffic_measures import (
    AGGREGATE,
    JAIN,
    RESENT,
    WORST_FIFTH,
    WORST_SECOND,
    Seen,
    least_share,
)

ALLOCATORS = ("ctb", PHANTOM_QUEUES, "central-fair", "fair")
_KEYS = (
    "baseline", "udp-4", "udp-20", "rtt", "bbr", "lone-cubic-40ms", "lone-cubic-auto", "low-50k",
    "ports", "hundreds", "long-75kB",
)  # fmt: skip
_MEASURES = (AGGREGATE, JAIN, least_share(), WORST_FIFTH, WORST_SECOND, RESENT)
_REPEAT = 3
_NOISE = 0.02
"""Tolerance of a comparison of medians, as in `any_traffic_cases`."""


def _case(case: Case) -> Case:
    full = {**case.series.full, "allocators": list(ALLOCATORS), "repeat": _REPEAT}
    return replace(
        case,
        series=replace(case.series, name=f"phantom-queues/{case.key}", full=full, paces={}),
    )


SHOWN = [_case(case) for key in _KEYS for case in CASES if case.key == key]


def _values(results: Results, case: Case) -> dict[str, dict[str, float | None]]:
    """The median of each measure over the runs, by allocator and measure."""
    name = case.series.name
    found: dict[str, dict[str, float | None]] = {}
    for allocator in ALLOCATORS:
        known = results.by_series.get(name)
        built = None if known is None else build(known["definition"], name)
        runs = [Seen(run, built) for run in results.runs(name, allocator)] if built else []
        found[allocator] = {
            measure.name: statistics.median(map(measure.of, runs)) if runs else None
            for measure in _MEASURES
        }
    return found


def _off(aggregate: float | None) -> float | None:
    """The distance of an aggregate from the limit, over the limit."""
    return None if aggregate is None else abs(aggregate - 1)


def _checks(case: Case, values: dict[str, dict[str, float | None]]) -> list[Check]:
    ours, theirs = values["central-fair"], values[PHANTOM_QUEUES]
    than = f"{NAMES['central-fair']} less {NAMES[PHANTOM_QUEUES]}"
    used, fair, burst = AGGREGATE.name, JAIN.name, WORST_FIFTH.name
    return [
        Check(f"{case.title}: distance of the aggregate from the limit, {than}",
              difference(_off(ours[used]), _off(theirs[used])), most=_NOISE),
        Check(f"{case.title}: {fair}, {than}",
              difference(ours[fair], theirs[fair]), least=-_NOISE),
        Check(f"{case.title}: {burst}, {than}",
              difference(ours[burst], theirs[burst]), most=0.0),
    ]  # fmt: skip


def evaluate(results: Results) -> Finding:
    """Compare `fair` at one limiter with BC-PQP: use of the limit, fairness, and bursts."""
    shown = [(case, _values(results, case)) for case in SHOWN if results.has(case.series.name)]
    checks = [check for case, values in shown for check in _checks(case, values)]
    rows = [
        [case.title, measure.name,
         *(text(values[allocator][measure.name], 3) for allocator in ALLOCATORS)]
        for case, values in shown for measure in _MEASURES
    ]  # fmt: skip
    held = sum(check.verdict.value == "ok" for check in checks)
    return Finding(
        checks,
        f"{NAMES['central-fair']} is no worse than {NAMES[PHANTOM_QUEUES]} in {held} of "
        f"{len(checks)} comparisons",
        tables=[Table("Medians over the runs; Jain's index is of the TCP flows",
                      ["case", "measured", *(NAMES[name] for name in ALLOCATORS)], rows)],
    )  # fmt: skip


@chart("phantom-queues", 8, 4.2)
def draw(results: Results, axes: Axes) -> bool:
    """The least share of a TCP flow in each case."""
    shown = [
        (case, _values(results, case)) for case in SHOWN if case.series.name in results.by_series
    ]
    if not shown:
        return False
    for number, allocator in enumerate(ALLOCATORS):
        least = [values[allocator][least_share().name] or 0.0 for _, values in shown]
        places = [place + 0.2 * (number - 1.5) for place in range(len(shown))]
        axes.bar(places, least, 0.2, color=COLOURS[number], label=NAMES[allocator])
    limit_line(axes, 1)
    axes.set_xticks(range(len(shown)), [case.key for case, _ in shown], rotation=30)
    axes.set_ylabel("Slowest TCP flow over its max-min share")
    axes.legend(fontsize=7, ncols=2)
    return True


FIGURE = Figure(
    "phantom-queues",
    "One limiter: fair beside phantom queues (BC-PQP)",
    "Not in the paper. Goal: fair uses the limit as well as BC-PQP, and divides it as fairly",
    [case.series for case in SHOWN],
    evaluate,
    draw,
    page="any-traffic",
)
