"""Draws the distributions of reactions to events: a panel per kind, a line per allocator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from testbed.plot import grid

LINES = {
    "ctb": ("#1a1a1a", "-"),
    "crd": ("#5a5a5a", (0, (5, 2))),
    "static": ("#8a8a8a", ":"),
    "gtb": ("#e69f00", "-"),
    "grd": ("#cc79a7", "-"),
    "fps": ("#0072b2", "-"),
    "fps-paper": ("#0072b2", ":"),
    "fair": ("#009e73", "-"),
    "fps-random-drop": ("#d55e00", (0, (5, 2))),
    "adaptive": ("#56b4e9", "-"),
}
"""Colour and dashes of each allocator."""
_ORDER = ("join", "leave", "bottleneck", "release", "limit", "death", "return")
_NAMES = {
    "join": "A flow joins",
    "leave": "A flow leaves",
    "bottleneck": "Others are bottlenecked",
    "release": "A bottleneck goes",
    "limit": "The limit grows",
    "death": "A limiter dies",
    "return": "A limiter comes back",
}
_COLUMNS = 3
_LONGEST_S = 6.0
"""Upper end of the time axis."""


def response_figure(runs: Sequence[dict[str, Any]]) -> Figure:
    """Cumulative distributions of t80 over all flows whose fair share grew."""
    times: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        for event in run["events"]:
            for flow in event["flows"]:
                time_s = float("inf") if flow["t80_s"] is None else flow["t80_s"]
                of_kind = times.setdefault(event["kind"], {})
                of_kind.setdefault(run["allocator"], []).append(time_s)
    kinds = sorted(times, key=lambda kind: (*_ORDER, kind).index(kind))
    figure, panels = grid(len(kinds), _COLUMNS, 3.5, 2.8, sharey=True)
    named: dict[str, Any] = {}
    for axes, kind in zip(panels, kinds, strict=True):
        longest = max(
            (time for of in times[kind].values() for time in of if time < float("inf")), default=1.0
        )
        axes.set_xlim(-0.02 * min(longest, _LONGEST_S), max(min(1.1 * longest, _LONGEST_S), 1.0))
        axes.set_ylim(0, 1.03)
        axes.set_title(_NAMES.get(kind, kind))
        for allocator, values in times[kind].items():
            colour, dashes = LINES.get(allocator, ("#5a5a5a", "-"))
            known = sorted(value for value in values if value < float("inf"))
            # Along the steps of the distribution, and on to the end of the axis.
            (named[allocator],) = axes.step(
                [0.0, *known, axes.get_xlim()[1]],
                [0.0, *(rank / len(values) for rank in range(1, len(known) + 1)),
                 len(known) / len(values)],
                where="post", color=colour, linestyle=dashes, linewidth=1.6,
            )  # fmt: skip
    figure.supxlabel("Time to 80 % of the fair share, t80 (s)", fontsize=10)
    figure.supylabel("Share of flows", fontsize=10)
    figure.legend(
        list(named.values()), list(named), loc="outside upper center", ncols=min(len(named), 6)
    )
    return figure
