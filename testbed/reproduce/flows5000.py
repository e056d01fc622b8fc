"""Section 5.6, the number of flows: 5,000 through two limiters of 50 Mbit/s, 1,500 : 3,500.

A flow's share is 10 kbit/s, less than one packet a second: TCP lives by timeouts there, and is
unfair under any limiter. They start over 15 s, and what is measured begins at 20 s. The depth is
375 kB, as long at this limit as the baseline's 75 kB at 10 Mbit/s; the paper does not tell its own.

A limiter's flows are 0.3 and 0.7 of all, so its share of the limit ought to be. Jain's index does
not show it: it hardly differs between a split of 0.30 and one of 0.50.
"""

from __future__ import annotations

from matplotlib.axes import Axes

from testbed.harness.draw import chart
from testbed.harness.figure import Figure
from testbed.harness.finding import Finding, Table, near
from testbed.harness.results import Results, ratio, text
from testbed.harness.series import Series
from testbed.plot import COLOURS
from testbed.reproduce.baseline import FPS, NAMES, papers

_ALLOCATORS = ("ctb", "grd", *FPS)
_PAPER = {"ctb": ("51", "0.34"), "grd": ("53", "0.44"), "fps": ("46", "0.33")}
_DUE = 0.3
"""Share of the 1,500 flows."""

MANY_FLOWS = Series(
    "many-flows",
    "many-flows",
    full={"allocators": [*_ALLOCATORS], "repeat": 2},
    quick={"seconds": 26, "repeat": 1},
    alone=True,
)


def evaluate(results: Results) -> Finding:
    """Utilisation, fairness beside the paper's and CTB's, and the split."""
    names = results.wanted(MANY_FLOWS.name, _ALLOCATORS)
    papers_jain = {name: _PAPER[papers(name)][1] for name in names}
    used = {name: results.used(MANY_FLOWS.name, name) for name in names}
    jain = {name: results.jain(MANY_FLOWS.name, name) for name in names}
    share = {
        name: results.median(MANY_FLOWS.name, name, lambda run: float(run["share"]["l1"]))
        for name in names
    }
    checks = [
        *(near(f"{NAMES[name]}: aggregate over the limit", used[name], 1.0, 0.1)
          for name in names),
        *(near(f"{NAMES[name]}: Jain's index (paper: {papers_jain[name]})", jain[name],
               float(papers_jain[name]), 0.1) for name in names),
        *(near(f"{NAMES[name]} is about as fair as CTB: Jain's index over CTB's",
               ratio(jain[name], jain["ctb"]), 1.0, 0.3) for name in names if name != "ctb"),
        *(near(f"{NAMES[name]}: share of the limiter of 1,500 flows", share[name], _DUE, 0.03)
          for name in names),
    ]  # fmt: skip
    limit_mbit = results.limit_bps(MANY_FLOWS.name) / 1e6
    rows = []
    for name in names:
        aggregate = used[name]
        mbit = None if aggregate is None else aggregate * limit_mbit
        rows.append([NAMES[name], text(mbit), text(jain[name]), text(share[name], 3),
                     *_PAPER.get(name, ("-", "-"))])  # fmt: skip
    header = ["", "Mbit/s", "Jain", "share of the 1,500", "paper: Mbit/s", "Jain"]
    ours = "; ".join(
        f"{row[0]} {row[1]} Mbit/s, Jain {row[2]}, share of the 1,500 {row[3]}" for row in rows
    )
    return Finding(
        checks,
        ours,
        "Of the flows most wait for a timeout at any time, and how unfair that is depends on the "
        "kernel's TCP, under CTB as well. FPS counts the flows that are fast at the moment, of "
        "which both limiters have about as many, so that it divides the limit in halves and not "
        "3 : 7.",
        [Table("Medians over the runs", header, rows)],
    )


@chart("flows5000", 7.2, 4.0)
def draw(results: Results, axes: Axes) -> bool:
    """What part of the flows gets how much, in the first run of each allocator."""
    names = [name for name in _ALLOCATORS if results.runs(MANY_FLOWS.name, name)]
    if not names:
        return False
    for name, colour in zip(names, COLOURS, strict=False):
        flows = results.runs(MANY_FLOWS.name, name)[0]["flows"]
        rates = sorted(flow["goodput_bps"] / 1e3 for flow in flows)
        parts = [(index + 1) / len(rates) for index in range(len(rates))]
        axes.plot(rates, parts, color=colour, label=NAMES[name])
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlim(left=0)
    axes.set_xlabel("Goodput of a flow (kbit/s)")
    axes.set_ylabel("Part of the flows with at most that")
    axes.legend()
    return True


FIGURE = Figure(
    "flows5000",
    "Section 5.6: 5,000 flows",
    "Utilisation CTB 51, GRD 53, FPS 46 of 50 Mbit/s; Jain's index 0.34, 0.44, 0.33: about equal",
    [MANY_FLOWS],
    evaluate,
    draw,
)
