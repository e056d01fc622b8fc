"""Plots of a comparison: the error over time and against loss, and the reaction times."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib import rc_context
from matplotlib.axes import Axes

from testbed.fabrics.case import CHURN, DEATH, DEMAND, LOSSES, SIZES, Case
from testbed.fabrics.fleet import INTERVAL_NS
from testbed.fabrics.results import Results
from testbed.plot import COLOURS, STYLE, save

_SECONDS = INTERVAL_NS / 1e9
_LEAST = 1e-4
"""Drawn for an error of zero, which a logarithmic axis cannot show."""
_TIMES = 100
"""The size of the fleets in the plot over time."""
_LONGEST = 100
"""Most drawn intervals of a phase, except churn."""
_DASHES = ("-", "--", "-.", ":")


def draw(results: Results, directory: Path) -> list[Path]:
    """Draw the measured cases; return the files."""
    with rc_context(STYLE):
        return [
            _over_time(results, directory),
            _against_loss(results, directory),
            _against_size(results, directory),
        ]


def _colour(results: Results, fabric: str) -> str:
    return COLOURS[results.fabrics().index(fabric) % len(COLOURS)]


def _over_time(results: Results, directory: Path) -> Path:
    panels: tuple[tuple[str, dict[str, Any], tuple[str, ...], str], ...] = (
        (DEMAND, {"loss": 0.05}, ("steady", "up", "down", "restless"), "5 % lost"),
        (DEATH, {"loss": 0.0}, ("death", "return"), "nothing lost"),
        (CHURN, {"every": 40}, ("churn",), "a death every 2 s"),
    )
    figure, grid = plt.subplots(len(panels), figsize=(9.5, 8.5), sharey=True, layout="constrained")
    for axes, (part, changes, phases, title) in zip(grid, panels, strict=True):
        cases = [Case(part, fabric, _TIMES, **changes) for fabric in results.fabrics()]
        begin = 0
        for phase in phases:
            found = {
                case.fabric: results.series(case, phase)[: None if part == CHURN else _LONGEST]
                for case in cases
            }
            axes.axvline(begin * _SECONDS, color="#c8c8c8", linewidth=0.8)
            for fabric, errors in found.items():
                times = [(begin + number) * _SECONDS for number in range(1, 1 + len(errors))]
                axes.plot(times, [max(error, _LEAST) for error in errors], linewidth=1.3,
                          color=_colour(results, fabric),
                          label=fabric if errors and phase == phases[0] else None)  # fmt: skip
            begin += max(map(len, found.values()), default=0)
        axes.set_title(f"{_TIMES} limiters, {title}: {', '.join(phases)}")
        axes.set_xlabel("Time (s)")
        axes.set_ylabel("Error of the total, rms")
        _finish(axes)
        _legend(axes)
    return save(figure, directory / "fabrics-time.png")


def _against_loss(results: Results, directory: Path) -> Path:
    panels = (("restless", "rms", "Restless demand"), ("up", "doubled", "After the total doubled"))
    figure, grid = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
    for axes, (phase, key, title) in zip(grid, panels, strict=True):
        for fabric in results.fabrics():
            for size, dashes in zip(SIZES, _DASHES, strict=True):
                found = [
                    (100 * loss, error) for loss in LOSSES
                    if (error := results.rms(Case(DEMAND, fabric, size, loss=loss), phase, key))
                    is not None
                ]  # fmt: skip
                if found:
                    axes.plot(*zip(*[(x, max(y, _LEAST)) for x, y in found], strict=True), dashes,
                              marker="o", markersize=3, color=_colour(results, fabric),
                              label=f"{fabric}, {size:,}")  # fmt: skip
        axes.set_title(title)
        axes.set_xlabel("Updates lost (%)")
        _finish(axes)
    grid[0].set_ylabel("Error of the total, rms")
    handles, labels = grid[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside right center", fontsize=7)
    return save(figure, directory / "fabrics-loss.png")


def _against_size(results: Results, directory: Path) -> Path:
    panels = (
        (DEMAND, ("up", "close_after"), "A doubled total is known"),
        (DEATH, ("death", "counted_after"), "A death is known to all"),
        (DEATH, ("return", "close_after"), "A return is known to all"),
    )
    figure, grid = plt.subplots(1, len(panels), figsize=(12, 4), layout="constrained")
    for axes, (part, path, title) in zip(grid, panels, strict=True):
        for fabric in results.fabrics():
            for loss, dashes in ((0.0, "-"), (0.2, "--")):
                found = [
                    (size, seconds) for size in SIZES
                    if (seconds := results.seconds(Case(part, fabric, size, loss=loss), *path))
                    is not None and not math.isinf(seconds)
                ]  # fmt: skip
                if found:
                    axes.plot(*zip(*found, strict=True), dashes, marker="o", markersize=3,
                              color=_colour(results, fabric),
                              label=f"{fabric}, {loss:.0%} lost")  # fmt: skip
        axes.set_title(title)
        axes.set_xlabel("Limiters")
        _finish(axes, both=True)
    grid[0].set_ylabel("Seconds (without runs that never knew it)")
    _legend(grid[0])
    return save(figure, directory / "fabrics-size.png")


def _finish(axes: Axes, *, both: bool = False) -> None:
    """Make the axes logarithmic. An axis without lines cannot be."""
    if axes.get_legend_handles_labels()[0]:
        axes.set_yscale("log")
        if both:
            axes.set_xscale("log")


def _legend(axes: Axes) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=7)
