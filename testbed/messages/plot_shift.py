"""Draws the delays of messages at two brokers, and the brokers' parts of the rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

from testbed.plot import COLOURS, MUTED, STYLE

_BIN_S = 0.5


def draw(result: Mapping[str, Any], file: Path) -> Path:
    """Draw a result of `testbed.messages.shift` into a file; return it."""
    with mpl.rc_context(STYLE):
        figure, (above, below) = plt.subplots(
            2, 1, figsize=(8.4, 5.4), sharex=True, layout="constrained",
            gridspec_kw={"height_ratios": [3, 2]},
        )  # fmt: skip
        for number, colour in enumerate(COLOURS[:2]):
            label = f"broker {number + 1}"
            delays = result["delays_s"][number]
            above.plot(
                [at_s for at_s, _ in delays], [1000 * delay for _, delay in delays],
                ".", markersize=3, color=colour, label=label,
            )  # fmt: skip
            below.plot(*binned(delays, result["seconds"]), color=colour, alpha=0.35, linewidth=1.2,
                       label=f"{label}: messages sent")  # fmt: skip
            parts = result["parts"][number]
            below.plot(
                [at_s for at_s, _ in parts], [part for _, part in parts], color=colour,
                linewidth=2.2, drawstyle="steps-post", label=f"{label}: its part",
            )  # fmt: skip
        for axes in (above, below):
            axes.axvline(result["moves_s"], color=MUTED, linewidth=1.2, linestyle=(0, (4, 3)))
        above.annotate(
            "80 % of the publishers\nmove to broker 2", (result["moves_s"], 1), xytext=(-6, -4),
            xycoords=("data", "axes fraction"), textcoords="offset points", ha="right", va="top",
            color=MUTED, fontsize=9,
        )  # fmt: skip
        above.set_title("Messages wait until the shares have followed their publishers")
        above.set_ylabel("Delay of a message (ms)")
        above.set_ylim(bottom=0)
        above.legend(loc="upper left", markerscale=4)
        below.set_ylabel("Messages/s")
        below.set_xlabel("Time (s)")
        below.set_ylim(0, result["rate"])
        below.set_xlim(0, result["seconds"])
        below.legend(loc="upper right", ncols=2, fontsize=8)
        figure.savefig(file)
        plt.close(figure)
    return file


def binned(
    delays: Sequence[tuple[float, float]], seconds: float
) -> tuple[list[float], list[float]]:
    """Rates of the messages by the time of sending: middles of bins, s, and messages/s."""
    counts = [0] * (int(seconds / _BIN_S) + 1)
    for at_s, _ in delays:
        counts[int(at_s / _BIN_S)] += 1
    whole = counts[: int(seconds / _BIN_S)]
    return [(number + 0.5) * _BIN_S for number in range(len(whole))], [
        count / _BIN_S for count in whole
    ]
