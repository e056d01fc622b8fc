"""Figure 3: the limiters' forwarding rates, and their sum, over time, in the baseline."""

from __future__ import annotations

from testbed.harness.draw import first_runs
from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table, near
from testbed.harness.results import Results, text, texts
from testbed.reproduce.baseline import ALLOCATORS, BASELINE, FPS, NAMES, PAPERS

_SMALL, _LARGE = "l1", "l2"
"""The limiters with three and with seven flows."""


def evaluate(results: Results) -> Finding:
    """Check the aggregates, and how they are split."""
    used = {name: results.used(BASELINE.name, name) for name in ALLOCATORS}
    small = {name: results.share(BASELINE.name, name, _SMALL) for name in used}
    checks = [
        *(
            near(f"{NAMES[name]}: aggregate over the limit", used[name], 1.0,
                 0.03 if name in FPS else 0.05)
            for name in PAPERS
        ),
        *(
            near(f"{NAMES[name]}: share of the 3-flow limiter (due: 0.3)", small[name],
                 0.3, 0.05)
            for name in ("grd", *FPS)
        ),
        Check("GTB: share of the 7-flow limiter, which gets nearly everything",
              results.share(BASELINE.name, "gtb", _LARGE), least=0.85),
        Check("fair, more strictly than the paper: aggregate over the limit", used["fair"],
              least=0.98, most=1.01),
    ]  # fmt: skip
    rows = [
        [NAMES[name],
         *texts([used[name], small[name], results.share(BASELINE.name, name, _LARGE)])]
        for name in used
    ]  # fmt: skip
    ours = "aggregate over the limit, and share of the 3-flow limiter: " + ", ".join(
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
    first_runs("fig3", {NAMES[name]: (BASELINE.name, name) for name in PAPERS}),
)
