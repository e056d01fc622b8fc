"""Figure 3: forwarding rate over time of each limiter and in sum, in the baseline experiment."""

from __future__ import annotations

from testbed.harness.draw import first_runs
from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table, near
from testbed.harness.results import Results, text
from testbed.reproduce.baseline import ALLOCATORS, BASELINE, FPS, NAMES, PAPERS

_TOP_MBIT = 15.0
_SMALL, _LARGE = "l1", "l2"
"""Limiters of three and of seven flows."""


def _share(results: Results, allocator: str, limiter: str) -> float | None:
    return results.median(BASELINE.name, allocator, lambda run: float(run["share"][limiter]))


def evaluate(results: Results) -> Finding:
    """Limit and split."""
    used = {name: results.used(BASELINE.name, name) for name in ALLOCATORS}
    small = {name: _share(results, name, _SMALL) for name in used}
    checks = [
        *(
            near(f"{NAMES[name]}: aggregate over the limit", used[name], 1.0,
                 0.03 if name in FPS else 0.05)
            for name in PAPERS
        ),
        *(
            near(f"{NAMES[name]}: share of the 3-flow limiter, 0.3 is its due", small[name],
                 0.3, 0.05)
            for name in ("grd", *FPS)
        ),
        Check("GTB: share of the 7-flow limiter, which gets nearly everything",
              _share(results, "gtb", _LARGE), least=0.85),
        Check("fair, more strictly than the paper: aggregate over the limit", used["fair"],
              least=0.98, most=1.01),
    ]  # fmt: skip
    rows = [
        [NAMES[name], text(used[name], 3), text(small[name], 3),
         text(_share(results, name, _LARGE), 3)]
        for name in used
    ]  # fmt: skip
    ours = "aggregate over the limit, and share of the three flows: " + ", ".join(
        f"{NAMES[name]} {text(used[name], 3)} and {text(small[name], 3)}" for name in PAPERS
    )
    header = ["", "aggregate / limit", "3-flow limiter", "7-flow limiter"]
    return Finding(checks, ours, tables=[Table("Medians over the runs", header, rows)])


FIGURE = Figure(
    "fig3",
    "Figure 3: forwarding rate over time, baseline",
    "All hold about 10 Mbit/s in sum; GRD and FPS split it about 3 : 7; GTB gives the 7-flow "
    "limiter nearly everything",
    [BASELINE],
    evaluate,
    first_runs("fig3", _TOP_MBIT, {NAMES[name]: (BASELINE.name, name) for name in PAPERS}),
)
