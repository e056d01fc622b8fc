"""The parts of a limit that limiters have, as functions of time that change in steps. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple


class Part(NamedTuple):
    """A limiter's part of a limit from a time on: its rate a second and its depth."""

    rate: float
    depth: float


NONE = Part(0.0, 0.0)
"""The part of a dead limiter."""


class Shares:
    """The parts of all limiters."""

    def __init__(self) -> None:
        self._changes: list[tuple[float, int, Part]] = []

    def note(self, at_s: float, own: int, part: Part) -> None:
        """Record a limiter's part from a time on."""
        self._changes.append((at_s, own, part))

    def largest(self) -> Part:
        """The largest sums of rates and of depths, over all changes."""
        now: dict[int, Part] = {}
        largest = NONE
        for _, own, part in sorted(self._changes, key=lambda it: it[0]):
            now[own] = part
            rate, depth = (sum(values) for values in zip(*now.values(), strict=True))
            largest = Part(max(largest.rate, rate), max(largest.depth, depth))
        return largest

    def followed_s(self, wanted: Sequence[float], since_s: float, tolerance: float) -> float | None:
        """The time from `since_s` until all limiters have, and keep, these parts of the rates.

        None: they do not by the last change.
        """
        now: defaultdict[int, Part] = defaultdict(lambda: NONE)
        since: float | None = None
        for at_s, own, part in sorted(self._changes, key=lambda it: it[0]):
            now[own] = part
            total = sum(it.rate for it in now.values()) or 1.0
            near = all(
                abs(now[number].rate / total - part) <= tolerance
                for number, part in enumerate(wanted)
            )
            if at_s >= since_s:
                since = (at_s if since is None else since) if near else None
        return None if since is None else since - since_s
