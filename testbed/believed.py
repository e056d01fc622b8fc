"""The limiters' errors about the sum of the fleet's shared values. Pure."""

from __future__ import annotations

import bisect
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

STEP_S = 1.0
"""Time between two samples of the fleet."""


@dataclass(frozen=True, slots=True)
class BelievedTotal:
    """The error of the limiters' sums, at times from the start on."""

    times_s: list[float]
    errors: list[float]
    """Root mean square over the limiters, as a part of the true total."""


def error_of(shared: Collection[tuple[float, float]]) -> float | None:
    """The error of limiters, from each one's shared value and its sum of the others' values.

    None if there is no fleet, or the true sum is 0.
    """
    total = sum(own for own, _ in shared)
    if len(shared) < 2 or not total:
        return None
    squares = sum(((own + others) / total - 1) ** 2 for own, others in shared)
    return math.sqrt(squares / len(shared))


def from_ticks(
    ticks: Mapping[str, Sequence[tuple[float, float, float]]], duration_s: float
) -> BelievedTotal | None:
    """The error over a run, from (time, own value, sum of the others) of each limiter's ticks.

    None if it is never known.
    """
    times = {limiter: list(map(itemgetter(0), series)) for limiter, series in ticks.items()}
    found = BelievedTotal([], [])
    for index in range(int(duration_s / STEP_S) + 1):
        now_s = index * STEP_S
        last = {limiter: bisect.bisect_right(times[limiter], now_s) - 1 for limiter in times}
        shared = [ticks[limiter][place][1:] for limiter, place in last.items() if place >= 0]
        error = error_of(shared)
        if error is not None:
            found.times_s.append(now_s)
            found.errors.append(error)
    return found if found.errors else None
