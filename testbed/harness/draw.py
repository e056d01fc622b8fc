"""Plots that several figures share; what they show comes from results alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.harness.results import Run
from testbed.plot import RATE_LABEL, STYLE, legend, panel, save

_COLUMNS = 2
_WIDTH = 5.6


def grid(count: int, height: float = 2.9, **keywords: Any) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels, two in a row; call it within `rc_context(STYLE)`."""
    columns = min(count, _COLUMNS)
    rows = -(-count // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(_WIDTH * columns, height * rows + 0.6), squeeze=False,
        layout="constrained", **keywords,
    )  # fmt: skip
    found: list[Axes] = list(axes.flat)
    for unused in found[count:]:
        unused.set_visible(False)
    return figure, found[:count]


def rates_over_time(
    panels: Sequence[tuple[str, dict[str, Any], Run]], path: Path, top: float
) -> list[Path]:
    """Forwarding rate of every limiter and in sum: a panel for each (title, result, run).

    `top` is the end of the rate axis, Mbit/s. Without a panel nothing is drawn.
    """
    if not panels:
        return []
    with rc_context(STYLE):
        figure, axes = grid(len(panels), sharex=True, sharey=True)
        for place, (letter, (title, result, run)) in zip(
            axes, zip("abcdefgh", panels, strict=False), strict=True
        ):
            panel(place, result, dict(run), top)
            place.set_title(f"({letter}) {title}")
            place.xaxis.set_tick_params(labelbottom=True)
        figure.supxlabel("Time (s)", fontsize=10)
        figure.supylabel(RATE_LABEL, fontsize=10)
        legend(figure, axes[0])
        return [save(figure, path)]
