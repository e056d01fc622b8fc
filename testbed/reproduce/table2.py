"""Table 2: seven flows of 10 ms at one limiter, three of 100 ms at the other."""

from __future__ import annotations

from matplotlib.axes import Axes

from testbed.harness.draw import chart
from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table, near
from testbed.harness.results import Results, difference, mean_and_spread, ratio, text
from testbed.harness.series import Series
from testbed.plot import COLOURS, MBIT
from testbed.reproduce.baseline import FPS, NAMES, papers

_ALLOCATORS = ("ctb", "grd", *FPS)
_LONG, _SHORT = "l1", "l2"
_PAPER = {
    "ctb": ["10.57", "1.41 (0.16)", "0.10 (0.01)"],
    "grd": ["10.63", "1.35 (0.71)", "0.16 (0.03)"],
    "fps": ["10.43", "0.92 (0.15)", "0.57 (0.05)"],
}
_PAPER_MBIT = {"ctb": (1.41, 0.10), "grd": (1.35, 0.16), "fps": (0.92, 0.57)}
"""Goodput of a short and of a long flow."""
_FACTOR = 1.5
"""Tolerance for a rate: this factor above and below the paper's."""
_DUE = 0.3
"""The part of the goodput that three of ten equal flows have."""

RTT_MIX = Series(
    "rtt-mix",
    "rtt-mix",
    full={"allocators": [*_ALLOCATORS], "repeat": 6},
    quick={"seconds": 16, "warmup": "6s", "repeat": 1},
)


def rates(results: Results, allocator: str, limiter: str) -> list[float]:
    """Goodput of every flow at a limiter in every run, bits/s."""
    return [
        flow["goodput_bps"]
        for run in results.runs(RTT_MIX.name, allocator)
        for flow in run["flows"]
        if flow["limiter"] == limiter
    ]


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def evaluate(results: Results) -> Finding:
    """Check the flows' goodput by round trip."""
    used = {name: results.used(RTT_MIX.name, name) for name in _ALLOCATORS}
    long = {name: _mean(rates(results, name, _LONG)) for name in _ALLOCATORS}
    short = {name: _mean(rates(results, name, _SHORT)) for name in _ALLOCATORS}
    papers_short, papers_long = _PAPER_MBIT["fps"]
    papers_part = _part(papers_long, papers_short)
    parts = {name: _part(long[name], short[name]) for name in _ALLOCATORS}
    checks = [
        *(near(f"{NAMES[name]}: aggregate over the limit", used[name], 1.0, 0.03)
          for name in FPS),
        *(
            Check(f"{NAMES[name]} delivers CTB's aggregate: difference, of the limit",
                  difference(used[name], used["ctb"]), least=-0.05, most=0.05)
            for name in _ALLOCATORS[1:]
        ),
        *(
            _alike(f"{NAMES[name]}: goodput of a {length} flow", rate,
                   _PAPER_MBIT[papers(name)][place])
            for name in _ALLOCATORS
            for place, (length, rate) in enumerate((("short", short[name]), ("long", long[name])))
        ),
        Check("CTB: short flows dominate: their rate over that of long ones",
              ratio(short["ctb"], long["ctb"]), least=5.0),
        Check("GRD: long flows' rate over CTB's", ratio(long["grd"], long["ctb"]), least=1.0),
        *(
            Check(f"{NAMES[name]} is no less fair between round trips than the paper's: distance "
                  "of the long flows' part of the goodput from 0.30",
                  _distance(parts[name]), most=_distance(papers_part))
            for name in FPS
        ),
    ]  # fmt: skip
    rows = []
    for name in results.wanted(RTT_MIX.name, _ALLOCATORS):
        cells = []
        for limiter in (_SHORT, _LONG):
            middle, deviation = mean_and_spread(rates(results, name, limiter), MBIT)
            cells.append(f"{middle} ({deviation})")
        aggregate = used[name]
        total = None if aggregate is None else aggregate * results.limit_bps(RTT_MIX.name) / MBIT
        rows.append([NAMES[name], text(total), *cells, *_PAPER.get(name, ["-"] * 3)])
    header = ["", "aggregate", "short", "long", "paper: aggregate", "short", "long"]
    ours = "; ".join(
        f"{row[0]}: aggregate {row[1]} Mbit/s, short {row[2]}, long {row[3]}" for row in rows
    )
    title = "Mbit/s; for flows, the mean and (in brackets) the standard deviation over all runs"
    return Finding(
        checks,
        ours,
        f"The three long flows are 0.30 of all. The paper's FPS gave them {text(papers_part)} of "
        f"the goodput, for an unknown reason. Here figure 2 as printed gives them "
        f"{text(parts['fps-paper'])}, drld's FPS {text(parts['fps'])} and fair "
        f"{text(parts['fair'])}. (Flows are in goodput, the aggregate is in IP-layer bytes.)",
        [Table(title, header, rows)],
    )


def _part(long: float | None, short: float | None) -> float | None:
    """The three long flows' part of the goodput, beside seven short ones."""
    return None if long is None or short is None else 3 * long / (3 * long + 7 * short)


def _distance(part: float | None) -> float | None:
    """The distance of a part from the fair one."""
    return None if part is None else abs(part - _DUE)


def _alike(statement: str, rate_bps: float | None, papers_mbit: float) -> Check:
    """A check that a rate is within a factor of the paper's."""
    mbit = None if rate_bps is None else rate_bps / MBIT
    return Check(f"{statement} (paper: {papers_mbit:.2f})", mbit, "Mbit/s",
                 papers_mbit / _FACTOR, papers_mbit * _FACTOR)  # fmt: skip


@chart("table2", 7.2, 4.0)
def draw(results: Results, axes: Axes) -> bool:
    """Every flow of every run as a point."""
    names = [name for name in _ALLOCATORS if results.runs(RTT_MIX.name, name)]
    if not names:
        return False
    for place, name in enumerate(names):
        for side, (limiter, label) in enumerate(
            ((_SHORT, "short (10 ms)"), (_LONG, "long (100 ms)"))
        ):
            values = [rate / MBIT for rate in rates(results, name, limiter)]
            at = place + (side - 0.5) * 0.3
            axes.plot([at] * len(values), values, "o", color=COLOURS[side], alpha=0.4,
                      markersize=5, label=label if place == 0 else None)  # fmt: skip
            axes.plot(at, sum(values) / len(values), "_", color="#1a1a1a", markersize=18)
    axes.set_xticks(range(len(names)), [NAMES[name] for name in names])
    axes.set_ylim(bottom=0)
    axes.set_ylabel("Goodput of a flow (Mbit/s)")
    axes.legend()
    return True


FIGURE = Figure(
    "table2",
    "Table 2: short and long round trips",
    "Aggregates are equivalent (CTB 10.57, GRD 10.63, FPS 10.43 Mbit/s); short flows get "
    "1.41, 1.35 and 0.92 Mbit/s, long ones 0.10, 0.16 and 0.57",
    [RTT_MIX],
    evaluate,
    draw,
)
