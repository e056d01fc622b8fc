"""The plots of a result, made from result.json alone (docs/testbed.md).

One plot for each allocator like those of the paper's figure 3: the forwarding rate of each limiter,
and their sum, over time. One with all allocators, and one of the reactions to events, if any.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

from testbed.plot import MBIT, RATE_LABEL, STYLE, TITLES, legend, panel, rates_figure, save
from testbed.plot_response import response_figure


def plot_result(result: dict[str, Any], directory: Path) -> list[Path]:
    """Draw the first run of every allocator; return the files."""
    first: dict[str, dict[str, Any]] = {}
    for run in result["runs"]:
        first.setdefault(run["allocator"], run)
    directory.mkdir(parents=True, exist_ok=True)
    name = result["experiment"]
    files = []
    with mpl.rc_context(STYLE):
        top = _top(result, list(first.values()))
        for allocator, run in first.items():
            figure, axes = plt.subplots(figsize=(7.2, 3.7), layout="constrained")
            panel(axes, result, run, top)
            axes.set_xlabel("Time (s)")
            axes.set_ylabel(RATE_LABEL)
            legend(figure, axes)
            files.append(save(figure, directory / f"{name}-{allocator}.png"))
        if len(first) > 1:
            shown = [(TITLES.get(one, one), result, run) for one, run in first.items()]
            files.append(save(rates_figure(shown, top), directory / f"{name}.png"))
        if any(event["flows"] for run in result["runs"] for event in run["events"]):
            files.append(save(response_figure(result["runs"]), directory / f"{name}-t80.png"))
    return files


def _top(result: dict[str, Any], runs: Sequence[dict[str, Any]]) -> float:
    """Upper end of the rate axis, the same in all panels; slow start may exceed it."""
    highest = max(max(run["windows"][0]["bps"], default=0) for run in runs)
    return float(max(1.3 * result["limit_bps"], 1.05 * highest) / MBIT)
