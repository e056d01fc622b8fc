"""Plots that several figures share. They use nothing but results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from matplotlib import pyplot as plt
from matplotlib import rc_context

from testbed.harness.results import Results
from testbed.plot import STYLE, rates_figure, save

Draw: TypeAlias = Callable[[Results, Path], list[Path]]
"""Draws into a directory, and returns the files."""


def first_runs(name: str, shown: Mapping[str, tuple[str, str]], top: float = 15.0) -> Draw:
    """Forwarding rates of the limiters, and their sum, over time: a panel for each first run.

    `shown` has (series, allocator) by title. `top` is the upper end of the rate axis, Mbit/s: half
    above a limit of 10 Mbit/s.
    """

    def draw(results: Results, directory: Path) -> list[Path]:
        runs = [
            (title, results.by_series[series], found[0])
            for title, (series, allocator) in shown.items()
            if (found := results.runs(series, allocator))
        ]
        if not runs:
            return []
        lettered = [
            (f"({letter}) {title}", result, run)
            for letter, (title, result, run) in zip("abcdefgh", runs, strict=False)
        ]
        with rc_context(STYLE):
            return [save(rates_figure(lettered, top), directory / f"{name}.png")]

    return draw


def chart(
    name: str, width: float, height: float, columns: int = 1
) -> Callable[[Callable[[Results, Any], bool]], Draw]:
    """Make a plot (width and height in inches) of a function that draws into one axes, or a row.

    The function returns whether it drew anything.
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
