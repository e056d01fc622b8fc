"""Section 5.6, the number of flows: 5,000 through two limiters of 50 Mbit/s, 1,500 : 3,500.

A flow's share is 10 kbit/s, less than one packet a second. TCP then depends on timeouts, and is
unfair under any limiter. Flows start over 15 s, and the measurement begins at 20 s. The paper does
not state its depth. Here it is 375 kB, as many milliseconds as the baseline's 75 kB at 10 Mbit/s.

The limiters have 0.3 and 0.7 of the flows, so these should be their shares of the limit. Jain's
index does not show it: splits of 0.30 and of 0.50 have almost the same index.
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
"""The fair share of the 1,500 flows."""

MANY_FLOWS = Series(
    "many-flows",
    "many-flows",
    full={"allocators": [*_ALLOCATORS], "repeat": 2},
    quick={"seconds": 26, "repeat": 1},
    alone=True,
)


def evaluate(results: Results) -> Finding:
    """Check the aggregate, the fairness beside the paper's and CTB's, and the split."""
    names = results.wanted(MANY_FLOWS.name, _ALLOCATORS)
    papers_jain = {name: _PAPER[papers(name)][1] for name in names}
    used = {name: results.used(MANY_FLOWS.name, name) for name in names}
    jain = {name: results.jain(MANY_FLOWS.name, name) for name in names}
    share = {name: results.share(MANY_FLOWS.name, name, "l1") for name in names}
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
        "At any time most flows wait for a timeout. The resulting unfairness depends on the "
        "kernel's TCP, also under CTB. FPS counts the flows that are fast at the moment. Both "
        "limiters have about the same number of them, so it divides the limit in halves and not "
        "3 : 7.",
        [Table("Medians over the runs", header, rows)],
    )


@chart("flows5000", 7.2, 4.0)
def draw(results: Results, axes: Axes) -> bool:
    """The distribution of the flows' goodput, in the first run of each allocator."""
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
    axes.set_ylabel("Part of the flows with at most this goodput")
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
