"""Fleets of any size in which a live flow's fair share is what it is at figure 8's 490 limiters.

Limit, depth and arrivals grow with the fleet; flows live for a minute. A run begins when as many
live as ever will: those that are due to live by then start within the first seconds. What is
measured is as long at every size, for over a longer time unequal flows would look more equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from testbed.harness.results import Results, ratio
from testbed.harness.series import Series

PAPERS_LIMITERS = 490
BRANCHING = 3
_PAPERS_LIVE, _PAPERS_BPS, _PAPERS_BURST = 600, 50_000_000, 75_000
_LIFE_S, _FILL_S, _SECONDS = 60, 4, 16
WARMUP_S = 10
_KNOWN_FROM = 1000
"""Limiters from which on only some have drld's own membership: one record for each pair else."""
_PACE, _PACKETS_PACE = 0.0011, 0.0002
"""Seconds that the simulator takes for one second of a limiter that gossips, and of its flows."""
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
    """A series of runs with so many limiters; it tells the fleet `rounds` times the usual."""
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


def control(results: Results, series: str, allocator: str = "fps") -> float | None:
    """What all limiters of a series send to each other, over the limit."""
    limiters = len(results.by_series.get(series, {}).get("limiters", ()))
    sent = results.median(
        series, allocator, lambda run: float(run["gossip"]["bytes_per_limiter_per_s"])
    )
    return None if sent is None else ratio(sent * 8 * limiters, results.limit_bps(series))


def error(results: Results, series: str, allocator: str = "fps") -> float | None:
    """How wrong the limiters of a series are about the total; None where it was not looked at."""
    values = [
        float(run["gossip"]["believed_total"]["rms_error"])
        for run in results.runs(series, allocator)
        if "believed_total" in run["gossip"]
    ]
    return sum(values) / len(values) if values else None


def highest(results: Results, series: str, allocator: str = "fps") -> float | None:
    """The highest second of a series, over the limit."""
    rate = results.median(series, allocator, lambda run: float(max(run["windows"][0]["bps"])))
    return ratio(rate, results.limit_bps(series))
