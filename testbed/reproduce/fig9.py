"""Figure 9: ten web servers behind ten limiters; the demand moves to four of them and back."""

from __future__ import annotations

import statistics

from drld import units
from testbed.harness.draw import first_runs
from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table, near
from testbed.harness.results import Results, Run, text, texts, totals
from testbed.harness.series import Series
from testbed.reproduce.baseline import FPS
from testbed.reproduce.baseline import NAMES as ALLOCATORS

_NAMES = {"static": "Static 1/N", **{name: ALLOCATORS[name] for name in FPS}}
_HIGHEST = 1.15
_IDLE_SHARES_UNUSED = 0.45
"""Four of ten shares, and a margin for the bucket's depth."""
_QUICK_PHASE_S = 12


def _demand(phase_s: int) -> list[dict[str, object]]:
    """The experiment's demand with shorter phases."""
    everybody = [f"w{number}" for number in range(1, 11)]
    return [
        {"at": f"{phase_s}s", "web": everybody[:2], "concurrent": 8},
        {"at": f"{phase_s}s", "web": everybody[2:4], "concurrent": 7},
        {"at": f"{phase_s}s", "web": everybody[4:], "concurrent": 0},
        {"at": f"{2 * phase_s}s", "web": everybody, "concurrent": 3},
    ]


FIG9 = Series(
    "fig9",
    "fig9",
    full={"allocators": list(_NAMES), "repeat": 3},
    quick={"seconds": 3 * _QUICK_PHASE_S, "demand": _demand(_QUICK_PHASE_S), "repeat": 1},
    overhead_s=12.0,
)


def _phases(results: Results) -> list[tuple[str, float, float]]:
    """(which servers, begin, end) of each of the three phases, seconds."""
    definition = results.by_series.get(FIG9.name, {}).get("definition", {})
    changes = sorted({units.parse_duration(d["at"]) / 1e9 for d in definition.get("demand", [])})
    if len(changes) != 2:
        return []
    warmup_s = units.parse_duration(definition.get("warmup", "0s")) / 1e9
    first, second = changes
    return [
        ("all ten", warmup_s, first),
        ("four", first, second),
        ("all ten again", second, float(definition["seconds"])),
    ]


def _used(results: Results, allocator: str, begin_s: float, end_s: float) -> float | None:
    """Aggregate over the limit in a phase; median over the runs."""

    def of_run(run: Run) -> float:
        return statistics.fmean(totals(run, 1.0, begin_s, end_s)) / results.limit_bps(FIG9.name)

    return results.median(FIG9.name, allocator, of_run)


def evaluate(results: Results) -> Finding:
    """Check the aggregate in each phase."""
    phases = _phases(results)
    used = {
        name: {which: _used(results, name, begin_s, end_s) for which, begin_s, end_s in phases}
        for name in _NAMES
    }
    checks = [
        Check("Static 1/N cannot use the idle shares: aggregate over the limit while four servers "
              "have requests", used["static"].get("four"), most=_IDLE_SHARES_UNUSED),
        *(
            check
            for name in FPS
            for check in (
                near(f"{_NAMES[name]}: aggregate over the limit", results.used(FIG9.name, name),
                     1.0, 0.03),
                *(
                    near(f"{_NAMES[name]} delivers the limit while {which} have requests",
                         used[name].get(which), 1.0, 0.05)
                    for which in ("all ten", "four", "all ten again")
                ),
                Check(f"{_NAMES[name]} bursts above the limit only occasionally: 1 s windows of at "
                      "most 1.10 of it", results.within(FIG9.name, name), least=0.95),
                Check(f"{_NAMES[name]}: highest 1 s window over the limit",
                      results.highest(FIG9.name, name), most=_HIGHEST),
            )
        ),
    ]  # fmt: skip
    rows = [
        [name_of,
         *texts([results.used(FIG9.name, name), *used[name].values(),
                 results.within(FIG9.name, name)]),
         text(results.highest(FIG9.name, name))]
        for name, name_of in _NAMES.items()
    ]  # fmt: skip
    header = ["", "aggregate / limit", *(which for which, _, _ in phases), "1 s windows ≤ 1.10",
              "highest 1 s"]  # fmt: skip
    ours = "aggregate over the limit while four servers have requests: " + ", ".join(
        f"{name_of} {text(used[name].get('four'), 3)}" for name, name_of in _NAMES.items()
    )
    return Finding(
        checks,
        ours,
        "With a tree one burst is left, when the demand moves back to all ten (simulator).",
        [Table("Medians over the runs", header, rows)],
    )


FIGURE = Figure(
    "fig9",
    "Figure 9: ten web servers",
    "A static 1/N split cannot use the shares of the six servers without requests; FPS, while "
    "occasionally bursting above the limit, follows the demand and delivers the full limit",
    [FIG9],
    evaluate,
    first_runs("fig9", {title: (FIG9.name, name) for name, title in _NAMES.items()}, top=10.0),
)
