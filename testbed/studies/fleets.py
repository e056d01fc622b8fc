"""Fleets of any size in which a flow's fair share is the same as among figure 8's 490 limiters.

Limit, depth and arrivals grow with the fleet; flows live for a minute. A run begins in the steady
state: the flows that live at that time start within the first seconds. The measured time is the
same at every size, because unequal flows look more equal over a longer time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from testbed.harness.results import Results, text
from testbed.harness.series import Series

PAPERS_LIMITERS = 490
BRANCHING = 3
_PAPERS_LIVE, _PAPERS_BPS, _PAPERS_BURST = 600, 50_000_000, 75_000
_LIFE_S, _FILL_S, _SECONDS = 60, 4, 16
WARMUP_S = 10
_KNOWN_FROM = 1000
"""From this size on most limiters lack drld's own membership, which has a record for each pair."""
_PACE, _PACKETS_PACE = 0.0011, 0.0002
"""Processor seconds for a simulated second of a limiter's gossip, and of its flows."""
_CENTRAL = ("ctb", "crd")


def fleet(
    name: str,
    limiters: int,
    allocators: Sequence[str],
    settings: Sequence[str] = (),
    *,
    rounds: float = 1.0,
    quick: bool = False,
    **overrides: Any,
) -> Series:
    """A series with this number of limiters; they send `rounds` times the usual updates."""
    scale = limiters / PAPERS_LIMITERS
    every_us = round(_LIFE_S * 1e6 / (_PAPERS_LIVE * scale))
    gossiping = sum(allocator not in _CENTRAL for allocator in allocators) / len(allocators)
    return Series(
        name,
        "fig8",
        full={
            "allocators": list(allocators), "warmup": f"{WARMUP_S}s", "seconds": _SECONDS,
            "costs": True, **overrides,
        },
        quick={"repeat": 1} if quick else None,
        settings=(
            f"churn.limiters={limiters}",
            f"churn.life={_LIFE_S}s",
            f"churn.fill={_FILL_S}s",
            f"churn.every={every_us}us",
            f"limit.rate={round(_PAPERS_BPS * scale / 1000)}kbit",
            f"limit.burst={round(_PAPERS_BURST * scale)}B",
            f"gossip.known={str(limiters >= _KNOWN_FROM).lower()}",
            f"gossip.branching={BRANCHING}",
            *settings,
        ),
        simulated=True,
        pace=limiters * (_PACE * (1 + rounds) / 2 * gossiping + _PACKETS_PACE),
    )  # fmt: skip


def error(results: Results, series: str) -> float | None:
    """The limiters' error of the total under FPS; None if it was not measured."""
    values = [
        float(run["gossip"]["believed_total"]["rms_error"])
        for run in results.runs(series, "fps")
        if "believed_total" in run["gossip"]
    ]
    return sum(values) / len(values) if values else None


def cost(results: Results, series: str, key: str, scale: float = 1.0) -> str:
    """A limiter's cost under FPS (`costs` of a run), as a cell of a table."""
    return text(results.median(series, "fps", lambda run: run["costs"][key] / scale), 0)
