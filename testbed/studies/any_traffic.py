"""Any traffic, as one fair bucket: each case beside CTB and per-flow max-min (not in the paper).

`any_traffic_cases` has the experiments and their bounds, and `any_traffic_measures` the measures of
a run. All cases are simulated (docs/simulator.md). Those that the testbed can carry also run there.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from matplotlib import pyplot as plt
from matplotlib import rc_context

from testbed import experiment_file
from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table
from testbed.harness.results import Results, difference, text, texts
from testbed.plot import COLOURS, STYLE, limit_line, save
from testbed.reproduce.baseline import NAMES
from testbed.studies.any_traffic_cases import ALL_CASES, ALLOCATORS, JUDGED, Bound, Case
from testbed.studies.any_traffic_measures import Measure, Seen

_MAX_MIN = "max-min"
_MOST_GROUPS = 8
"""Most groups of a case in the table of rates."""


class _Runs:
    """The runs of a case, by allocator."""

    def __init__(self, results: Results, case: Case) -> None:
        self.case = case
        name = case.series.name
        known = results.by_series.get(name)
        definition = known["definition"] if known else None
        built = None if definition is None else experiment_file.build(definition, name)
        self.by_allocator: dict[str, list[Seen]] = {
            allocator: [Seen(run, built) for run in results.runs(name, allocator)] if built else []
            for allocator in ALLOCATORS
        }

    def values(self, allocator: str, measure: Measure) -> list[float]:
        """The value of a measure in each run."""
        return [measure.of(seen) for seen in self.by_allocator[allocator]]

    @property
    def any(self) -> Seen | None:
        """One of the runs; None: there is none."""
        return next((seen for runs in self.by_allocator.values() for seen in runs), None)


def evaluate(results: Results) -> Finding:
    """Check the judged allocator's measures in every case."""
    cases = [_Runs(results, case) for case in ALL_CASES]
    checks = [
        _check(runs, bound)
        for runs in cases
        if results.has(runs.case.series.name)
        for bound in runs.case.bounds
        if bound.least is not None or bound.most is not None
    ]
    held = sum(check.verdict.value == "ok" for check in checks)
    run = [runs for runs in cases if runs.any is not None]
    names = [name for name in ALLOCATORS if any(runs.by_allocator[name] for runs in run)]
    return Finding(
        checks,
        f"{NAMES[JUDGED]}: {held} of {len(checks)} bounds hold in {len(run)} cases",
        tables=[
            Table(
                "Medians over the runs, and the worst run; max-min is the value if each flow had "
                "its max-min fair share",
                ["case", "measured", "to reach", _MAX_MIN, *(NAMES[name] for name in names)],
                [_row(runs, bound, names) for runs in run for bound in runs.case.bounds],
            ),
            Table(
                "Mean rate of the flows of each group (IP layer, Mbit/s)",
                ["case", "group", _MAX_MIN, *(NAMES[name] for name in names)],
                [row for runs in run for row in _rates(runs, names)],
            ),
        ],
    )


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _worst(values: Sequence[float], bound: Bound) -> float | None:
    """The value that is closest to violating the bound, or violates it most."""
    if not values:
        return None
    if bound.least is None:
        return max(values)
    if bound.most is None:
        return min(values)
    middle = (bound.least + bound.most) / 2
    return max(values, key=lambda value: abs(value - middle))


def _check(runs: _Runs, bound: Bound) -> Check:
    values = runs.values(JUDGED, bound.measure)
    value = _worst(values, bound) if bound.worst else _median(values)
    statement = f"{runs.case.title}: {bound.measure.name}{', worst run' if bound.worst else ''}"
    if bound.beside is not None:
        value = difference(value, _median(runs.values(bound.beside, bound.measure)))
        statement += f", less that of {NAMES[bound.beside]}"
    return Check(statement, value, bound.measure.unit, bound.least, bound.most)


def _row(runs: _Runs, bound: Bound, names: Sequence[str]) -> list[str]:
    seen, measure = runs.any, bound.measure
    assert seen is not None
    reach = Check("", None, measure.unit, bound.least, bound.most).bounds
    if bound.beside is not None:
        reach += f" of the difference from {NAMES[bound.beside]}"
    ideal = None if measure.ideal is None else measure.ideal(seen)
    cells = []
    for name in names:
        values = runs.values(name, measure)
        worst = f" ({text(_worst(values, bound))})" if len(values) > 1 else ""
        cells.append(f"{text(_median(values))}{worst}")
    return [runs.case.title, measure.name, reach or "-", text(ideal), *cells]


def _rates(runs: _Runs, names: Sequence[str]) -> list[list[str]]:
    seen = runs.any
    assert seen is not None
    rows = []
    for group, flows in list(seen.groups.items())[:_MOST_GROUPS]:

        def mean(rates: dict[str, float], flows: Sequence[str] = flows) -> float:
            return statistics.fmean(rates.get(flow, 0.0) for flow in flows) / 1e6

        cells = [_median([mean(one.rates) for one in runs.by_allocator[name]]) for name in names]
        row = texts([mean(seen.deserved), *cells])
        rows.append([runs.case.title, f"{group} ({len(flows)})", *row])
    return rows


def draw(results: Results, directory: Path) -> list[Path]:
    """Rates of each case's TCP flows over their max-min shares: least, mean and most."""
    cases = [_Runs(results, case) for case in ALL_CASES]
    cases = [runs for runs in cases if runs.any is not None and runs.any.tcp]
    if not cases:
        return []
    with rc_context(STYLE):
        figure, axes = plt.subplots(
            figsize=(9.0, 0.45 * len(cases) + 1.4), layout="constrained"
        )  # fmt: skip
        for number, (name, colour) in enumerate(zip(ALLOCATORS, COLOURS, strict=False)):
            label: str | None = NAMES[name]
            for row, runs in enumerate(cases):
                if not runs.by_allocator[name]:
                    continue
                seen = runs.by_allocator[name][0]
                shares = [seen.rates[flow] / seen.deserved[flow] for flow in seen.tcp]
                height = row + 0.14 * (number - (len(ALLOCATORS) - 1) / 2)
                axes.plot([min(shares), max(shares)], [height] * 2, color=colour, linewidth=1.2)
                axes.plot(statistics.fmean(shares), height, "o", color=colour, markersize=3.5,
                          label=label)  # fmt: skip
                label = None
        limit_line(axes, 1.0, upright=True)
        axes.set_yticks(range(len(cases)), [runs.case.key for runs in cases])
        axes.set_ylim(len(cases) - 0.5, -0.5)
        axes.set_xscale("symlog", linthresh=1.0)
        axes.set_xlim(left=0)
        axes.set_xlabel("Rate of TCP flows over their max-min shares (first run)")
        axes.legend(fontsize=8)
        return [save(figure, directory / "any-traffic.png")]


FIGURE = Figure(
    "any-traffic",
    "Any traffic, as one fair bucket",
    "Not in the paper. Goal: flows of any kind get their max-min fair shares of the limit, and a "
    "bound on the fleet's bytes holds",
    [case.series for case in ALL_CASES],
    evaluate,
    draw,
    page="any-traffic",
)
