"""Plots that several figures share; what they show comes from results alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from matplotlib import pyplot as plt
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.harness.results import Results
from testbed.plot import RATE_LABEL, STYLE, legend, panel, save

Draw: TypeAlias = Callable[[Results, Path], list[Path]]
"""Draws into a directory, and returns the files."""
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


def first_runs(name: str, top: float, shown: Mapping[str, tuple[str, str]]) -> Draw:
    """Forwarding rate of every limiter and in sum over time, in first runs: a panel for each.

    `shown` has (series, allocator) by title, `top` is the end of the rate axis, Mbit/s.
    """

    def draw(results: Results, directory: Path) -> list[Path]:
        panels = [
            (title, dict(results.by_series[series]), dict(runs[0]))
            for title, (series, allocator) in shown.items()
            if (runs := results.runs(series, allocator))
        ]
        if not panels:
            return []
        with rc_context(STYLE):
            figure, axes = grid(len(panels), sharex=True, sharey=True)
            for place, (letter, (title, result, run)) in zip(
                axes, zip("abcdefgh", panels, strict=False), strict=True
            ):
                panel(place, result, run, top)
                place.set_title(f"({letter}) {title}")
                place.xaxis.set_tick_params(labelbottom=True)
            figure.supxlabel("Time (s)", fontsize=10)
            figure.supylabel(RATE_LABEL, fontsize=10)
            legend(figure, axes[0])
            return [save(figure, directory / f"{name}.png")]

    return draw


def chart(
    name: str, width: float, height: float, columns: int = 1
) -> Callable[[Callable[[Results, Any], bool]], Draw]:
    """Makes a plot, inches, of a function that draws into its axes (a row of them if several).

    The function returns whether there was anything to draw.
    """

    def decorate(into: Callable[[Results, Any], bool]) -> Draw:
        def draw(results: Results, directory: Path) -> list[Path]:
            with rc_context(STYLE):
                figure, axes = plt.subplots(
                    1, columns, figsize=(width, height), layout="constrained"
                )
                if into(results, axes):
                    return [save(figure, directory / f"{name}.png")]
                plt.close(figure)
                return []

        return draw

    return decorate
