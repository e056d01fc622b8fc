"""The parts that plots share: style, panels, and rates over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.record import FLEET

_SMOOTHING_S = 1.0
"""Rates are averages over this time: samples of 50 ms of a few TCP flows are noise."""
_LABELLED_WARMUP = 0.12
"""A warm-up shorter than this share of the run leaves no room for its name."""
_LEGEND_INCHES = 1.7
"""Width of an entry of the legend: a limiter, its flows, and a patch of colour."""
RATE_LABEL = "Forwarding rate (Mbit/s, 1 s average)"
MBIT = 1e6
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#b3a100", "#7f4fa3")
"""Okabe and Ito's colours for the colour-blind, and two more."""
_TOTAL_COLOUR = "#1a1a1a"
_LIMIT_COLOUR = "#b00020"
MUTED = "#5a5a5a"
TITLES = {
    "ctb": "Central token bucket (CTB)",
    "crd": "Central random drop (CRD)",
    "static": "Static split",
    "gtb": "Global token bucket (GTB)",
    "grd": "Global random drop (GRD)",
    "fair": "Max-min fair shares (fair)",
    "fps": "Flow proportional share (FPS)",
    "fps-random-drop": "FPS with random drop",
    "fps-paper": "Flow proportional share as the paper prints it",
    "adaptive": "Shares by recent rates and backlogs (adaptive)",
}
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8a8a8a",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
    "figure.dpi": 130,
}


def grid(
    count: int, columns: int = 2, width: float = 5.6, height: float = 2.9, **keywords: Any
) -> tuple[Figure, list[Axes]]:
    """A figure with panels (width and height in inches); call it within `rc_context(STYLE)`."""
    columns = min(count, columns)
    rows = -(-count // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(width * columns, height * rows + 0.6), squeeze=False,
        layout="constrained", **keywords,
    )  # fmt: skip
    found: list[Axes] = list(axes.flat)
    for unused in found[count:]:
        unused.set_visible(False)
    return figure, found[:count]


def rates_figure(
    shown: Sequence[tuple[str, Mapping[str, Any], Mapping[str, Any]]], top: float
) -> Figure:
    """Rates over time: a panel for each (title, result, run). `top`: end of the axis, Mbit/s."""
    figure, panels = grid(len(shown), sharex=True, sharey=True)
    for axes, (title, result, run) in zip(panels, shown, strict=True):
        panel(axes, result, run, top)
        axes.set_title(title)
        axes.xaxis.set_tick_params(labelbottom=True)
    figure.supxlabel("Time (s)", fontsize=10)
    figure.supylabel(RATE_LABEL, fontsize=10)
    legend(figure, panels[0])
    return figure


def limit_line(
    axes: Axes, limit: float, label: str | None = None, *, upright: bool = False
) -> None:
    """A dashed line at the limit, above all else; `upright` if the horizontal axis has rates."""
    draw = axes.axvline if upright else axes.axhline
    draw(limit, color=_LIMIT_COLOUR, linewidth=1.6, linestyle=(0, (5, 3)), label=label, zorder=4)


def panel(axes: Axes, result: Mapping[str, Any], run: Mapping[str, Any], top: float) -> None:
    """One allocator: the limiters' rates on each other, which are their sum, under the limit."""
    series = run["series"]
    step_s = run["series_step_s"]
    smooth = max(round(_SMOOTHING_S / step_s), 1)
    forwarded = {name: [row[1] for row in rows] for name, rows in series.items()}
    total = [sum(column) for column in zip(*forwarded.values(), strict=True)]
    times = [row[0] + step_s for row in next(iter(series.values()))]
    below: list[float] = []
    for colour, (label, values, value_times) in zip(
        COLOURS * len(forwarded), _by_limiter(result, run, forwarded, times), strict=False
    ):
        width = smooth if len(values) == len(times) else round(_SMOOTHING_S / run["flow_step_s"])
        rates = _smoothed(values, width)
        below = below or [0.0] * len(rates)
        above = [sum(pair) for pair in zip(below, rates, strict=True)]
        axes.fill_between(value_times, below, above, color=colour, alpha=0.75, lw=0, label=label)
        below = above
    axes.plot(times, _smoothed(total, smooth), color=_TOTAL_COLOUR, linewidth=1.2, label="total")
    limit_mbit = result["limit_bps"] / MBIT
    limit_line(axes, limit_mbit, f"limit ({limit_mbit:g} Mbit/s)")
    axes.axvspan(0, run["warmup_s"], color="#000000", alpha=0.045, linewidth=0, zorder=0)
    if run["warmup_s"] > _LABELLED_WARMUP * run["seconds"]:
        axes.annotate(
            "warm-up", (run["warmup_s"] / 2, top), xytext=(0, -10), textcoords="offset points",
            ha="center", color=MUTED, fontsize=8,
        )  # fmt: skip
    axes.set_xlim(0, run["seconds"])
    axes.set_ylim(0, top)
    axes.set_title(TITLES.get(run["allocator"], run["allocator"]))
    used = run["aggregate_bps"] / result["limit_bps"]
    fairness = "" if run["jain"] is None or run["events"] else f"Jain {run['jain']:.3f}, "
    axes.set_title(
        f"{fairness}rate {used:.3f} of the limit",
        loc="right", fontsize=8.5, fontweight="normal", color=MUTED,
    )  # fmt: skip


def in_detail(run: Mapping[str, Any]) -> bool:
    """Whether a run has data of each limiter, and not only of all together."""
    return list(run["series"]) != [FLEET]


def _by_limiter(
    result: Mapping[str, Any],
    run: Mapping[str, Any],
    forwarded: dict[str, list[int]],
    times: list[float],
) -> list[tuple[str, list[float], list[float]]]:
    """(label, bits/s, times) of every limiter's traffic.

    In a central run one limiter forwards everything. The traffic of each configured limiter is then
    the goodput of its flows, in coarser steps.
    """
    if len(result["limiters"]) > len(COLOURS) or not in_detail(run):
        return []
    labels = {name: f"{name} ({_traffic(result, name)})" for name in result["limiters"]}
    if run["share_of"] == "forwarded":
        return [(labels[name], list(map(float, forwarded[name])), times) for name in forwarded]
    step_s = run["flow_step_s"]
    received = [*run["flows"], *run.get("web", {}).get("sites", [])]
    if any("goodput_series_bps" not in item for item in received):
        return []
    steps = len(received[0]["goodput_series_bps"])
    ends = [(index + 1) * step_s for index in range(steps)]
    found = []
    for name in result["limiters"]:
        own = [item["goodput_series_bps"] for item in received if item["limiter"] == name]
        own = own or [[0.0] * steps]
        found.append((labels[name], [sum(column) for column in zip(*own, strict=True)], ends))
    return found


def _traffic(result: Mapping[str, Any], limiter: str) -> str:
    """A label for a limiter's traffic."""
    flows = sum(group["flows"] for group in result["groups"] if group["limiter"] == limiter)
    web = any(site["limiter"] == limiter for site in result.get("web", []))
    calls = result.get("definition", {}).get("calls", {})
    if calls.get("limiter") == limiter:
        return f"{calls['count']} callers"
    parts = [f"{flows} flow{'' if flows == 1 else 's'}"] if flows or not web else []
    return ", ".join([*parts, "web"] if web else parts)


def _smoothed(values: Sequence[float], width: int) -> list[float]:
    """Mbit/s, averaged over the last `width` values."""
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    found = []
    for index in range(1, len(sums)):
        begin = max(index - width, 0)
        found.append((sums[index] - sums[begin]) / (index - begin) / MBIT)
    return found


def legend(figure: Figure, axes: Axes) -> None:
    """One legend for all panels, in as many rows as the figure's width needs."""
    handles, labels = axes.get_legend_handles_labels()
    columns = max(int(figure.get_figwidth() / _LEGEND_INCHES), 1)
    figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), columns))


def save(figure: Figure, path: Path) -> Path:
    """Write a figure to a file, and close it."""
    figure.savefig(path)
    plt.close(figure)
    return path
