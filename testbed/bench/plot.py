"""The figure of a result: one panel a benchmark, drawn from the JSON alone, never measuring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt
from matplotlib import rc_context
from matplotlib.axes import Axes

from testbed.bench.report import rows_of
from testbed.bench.summary import Row
from testbed.plot import COLOURS, STYLE

_WIDTH = 11.0
_FAR = 20.0
"""Largest ratio of values in one plot, so that small ones can still be seen."""
_LINE_HEIGHT, _BAR_HEIGHT, _MARGIN = 2.9, 0.24, 1.0


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Draw each benchmark's headline: lines of the cases that are numbers, else points."""
    panels = []
    for name, benchmark in result["benchmarks"].items():
        rows = [row for row in rows_of(benchmark) if row.metric == benchmark["headline"]]
        rows = [row for row in rows if row.x is not None] or rows
        if rows:
            panels.append((f"{name}: {benchmark['title']}", benchmark["axis"], rows))
    heights = [
        _LINE_HEIGHT if _numeric(rows) else _MARGIN + _BAR_HEIGHT * len(rows)
        for _, _, rows in panels
    ]
    with rc_context(STYLE):
        figure, grid = plt.subplots(
            len(panels), 1, figsize=(_WIDTH, sum(heights) + 0.6), squeeze=False,
            height_ratios=heights, layout="constrained",
        )  # fmt: skip
        for (title, axis, rows), axes in zip(panels, grid[:, 0], strict=True):
            if _numeric(rows):
                _lines(axes, rows)
                axes.set_xlabel(axis, fontsize=8)
            else:
                _points(axes, rows)
            unit = f" ({rows[0].unit})" if rows[0].unit else ""
            axes.set_title(f"{title}\n{rows[0].metric}{unit}", loc="left", fontsize=9)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
        plt.close(figure)


def _numeric(rows: Sequence[Row]) -> bool:
    return all(row.x is not None for row in rows)


def _lines(axes: Axes, rows: Sequence[Row]) -> None:
    for colour, group in zip(COLOURS * len(rows), dict.fromkeys(row.group for row in rows),
                             strict=False):  # fmt: skip
        line = [row for row in rows if row.group == group]
        places = [row.x or 0.0 for row in line]
        axes.plot(places, [row.summary.median for row in line], "o-", color=colour, label=group,
                  markersize=4)  # fmt: skip
        axes.fill_between(
            places, [row.summary.lower for row in line], [row.summary.upper for row in line],
            color=colour, alpha=0.15, linewidth=0,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)


def _points(axes: Axes, rows: Sequence[Row]) -> None:
    groups = list(dict.fromkeys(row.group for row in rows))
    places = range(len(rows), 0, -1)
    for place, row in zip(places, rows, strict=True):
        summary, colour = row.summary, COLOURS[groups.index(row.group) % len(COLOURS)]
        axes.plot([summary.least, summary.most], [place, place], color=colour, linewidth=1)
        axes.plot([summary.lower, summary.upper], [place, place], color=colour, linewidth=4,
                  alpha=0.5)  # fmt: skip
        axes.plot(summary.median, place, "o", color=colour, markersize=5)
        if (bound := row.at_least if row.below is None else row.below) is not None:
            axes.plot(bound, place, "|", color="#b00020", markersize=12)
    axes.set_yticks(list(places), [f"{row.group}: {row.case}" for row in rows], fontsize=8)
    axes.set_ylim(0.4, len(rows) + 0.6)
    middles = sorted(abs(row.summary.median) for row in rows)
    if middles[-1] > _FAR * middles[len(middles) // 2]:
        axes.set_xscale("symlog")
    elif all(row.summary.least >= 0 for row in rows):
        axes.set_xlim(left=0)
