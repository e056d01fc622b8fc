"""Figure 4: histograms of the delivered rate over 1 s and over a short window, a row for each run.

The paper does not state the length of the short window. Here it is 100 ms, two estimate intervals.
GRD's rate depends on the meaning of the paper's "1-second EWMA parameter" of 0.1, so both readings
are shown (`testbed.reproduce.baseline.HASTY`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib import pyplot as plt
from matplotlib import rc_context
from matplotlib.axes import Axes

from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table, near
from testbed.harness.results import (
    Results,
    difference,
    ratio,
    share_within,
    spread,
    text,
    texts,
    totals,
)
from testbed.plot import COLOURS, MBIT, STYLE, limit_line, save
from testbed.reproduce.baseline import ALLOCATORS, BASELINE, BASELINE_HASTY, FPS, NAMES, PAPERS

_LONG_S, _SHORT_S = 1.0, 0.1
_AXIS_MBIT = 20.0
_BIN_MBIT = {_LONG_S: 0.25, _SHORT_S: 0.5}
_OVERLAP = 0.85
"""Height of a row's tallest bar, in rows."""


def evaluate(results: Results) -> Finding:
    """Check the spread of the rate in both windows."""

    def spread_of(allocator: str, window_s: float, series: str = BASELINE.name) -> float | None:
        limit_bps = results.limit_bps(series)
        return results.median(
            series, allocator, lambda run: spread(totals(run, window_s)) / limit_bps
        )

    names = ALLOCATORS
    limit_bps = results.limit_bps(BASELINE.name)
    worst = min(
        results.values(BASELINE.name, "fair", lambda run: share_within(run, limit_bps)),
        default=None,
    )
    long = {name: spread_of(name, _LONG_S) for name in names}
    short = {name: spread_of(name, _SHORT_S) for name in names}
    checks = [
        *(
            Check(f"{NAMES[name]} delivers the limit over 1 s: windows of at most 1.10 of it",
                  results.within(BASELINE.name, name), least=0.95)
            for name in PAPERS
        ),
        *(
            Check(f"{NAMES[name]} is bursty over 0.1 s: its spread over CTB's",
                  ratio(short[name], short["ctb"]), least=1.25)
            for name in ("gtb", "grd")
        ),
        *(
            check
            for name in FPS
            for check in (
                Check(f"{NAMES[name]} matches CTB over 1 s: difference of the spreads, of the "
                      "limit", _size(difference(long[name], long["ctb"])), most=0.03),
                Check(f"{NAMES[name]} matches CTB over 0.1 s: difference of the spreads, of the "
                      "limit", _size(difference(short[name], short["ctb"])), most=0.05),
            )
        ),
        Check("fair, more strictly than the paper: 1 s windows of at most 1.10 of the limit, in "
              "the worst run", worst, least=1.0),
        Check("GRD with an EWMA of 0.1 an interval: 1 s windows of at most 1.10 of the limit",
              results.within(BASELINE_HASTY.name, "grd"), least=0.95),
        near("GRD with an EWMA of 0.1 an interval: aggregate over the limit",
             results.used(BASELINE_HASTY.name, "grd"), 1.0, 0.05),
    ]  # fmt: skip
    ours = "standard deviation of the rate over 0.1 s, of the limit: " + ", ".join(
        f"{NAMES[name]} {text(short[name], 3)}" for name in PAPERS
    )
    rows = [
        [NAMES[name], *texts([long[name], short[name], results.within(BASELINE.name, name)])]
        for name in names
    ]
    hasty = [
        [NAMES[name], *texts([
            results.used(BASELINE_HASTY.name, name),
            spread_of(name, _LONG_S, BASELINE_HASTY.name),
            spread_of(name, _SHORT_S, BASELINE_HASTY.name),
            results.within(BASELINE_HASTY.name, name),
        ])]
        for name in results.wanted(BASELINE_HASTY.name, names)
    ]  # fmt: skip
    header = ["", "1 s: spread / limit", "0.1 s: spread / limit", "1 s windows ≤ 1.10"]
    tables = [Table("Medians over the runs", header, rows)]
    if BASELINE_HASTY.name in results.by_series:
        tables.append(Table("The same with an EWMA of 0.1 an interval",
                            ["", "aggregate / limit", *header[1:]], hasty))  # fmt: skip
    return Finding(
        checks,
        ours,
        "GRD's rate swings with a period of almost a second: its drop probability follows "
        "a demand that the filter delays. The size of the swings depends on the reading of the "
        "paper's EWMA parameter. In drld the estimate keeps a tenth of its weight each second, in "
        "the other reading each interval.",
        tables,
    )


def _size(value: float | None) -> float | None:
    return None if value is None else abs(value)


def draw(results: Results, directory: Path) -> list[Path]:
    """A column for each allocator: 1 s above, 0.1 s below."""
    names = [name for name in PAPERS if results.runs(BASELINE.name, name)]
    if not names:
        return []
    with rc_context(STYLE):
        figure, grid = plt.subplots(
            2, len(names), figsize=(2.6 * len(names), 6.2), squeeze=False, sharex=True,
            layout="constrained",
        )  # fmt: skip
        for row, window_s in enumerate((_LONG_S, _SHORT_S)):
            for axes, name, colour in zip(grid[row], names, COLOURS, strict=False):
                runs = results.runs(BASELINE.name, name)
                _histograms(axes, [totals(run, window_s) for run in runs], window_s, colour)
                limit_line(axes, results.limit_bps(BASELINE.name) / MBIT, upright=True)
                axes.set_title(f"{NAMES[name]}, {window_s:g} s", fontsize=9)
        figure.supxlabel("Forwarding rate (Mbit/s)", fontsize=10)
        figure.supylabel("Run", fontsize=10)
        return [save(figure, directory / "fig4.png")]


def _histograms(axes: Axes, runs: Sequence[Sequence[float]], window_s: float, colour: str) -> None:
    """One histogram above the other, a row for each run."""
    width = _BIN_MBIT[window_s]
    edges = [index * width for index in range(round(_AXIS_MBIT / width) + 1)]
    for number, rates in enumerate(runs, 1):
        counts = [0] * (len(edges) - 1)
        for rate in rates:
            counts[min(int(rate / MBIT / width), len(counts) - 1)] += 1
        highest = max([*counts, 1])
        axes.stairs(
            [number + _OVERLAP * count / highest for count in counts], edges, baseline=number,
            fill=True, color=colour, alpha=0.75,
        )  # fmt: skip
    axes.set_xlim(0, _AXIS_MBIT)
    axes.set_ylim(1, len(runs) + 1)
    axes.set_yticks(range(1, len(runs) + 1))


FIGURE = Figure(
    "fig4",
    "Figure 4: delivered rate over 1 s and over a short window",
    "All deliver the limit over 1 s; in the short window GTB and GRD are bursty, and FPS "
    "closely matches CTB in both",
    [BASELINE, BASELINE_HASTY],
    evaluate,
    draw,
)
