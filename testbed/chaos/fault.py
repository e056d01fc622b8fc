"""What a fault is, what is promised of it, and what was measured."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import trio

from testbed.chaos.members import Member
from testbed.chaos.scene import RATE, Scene
from testbed.chaos.series import FULL
from testbed.harness.finding import Check

KERNEL, NFQUEUE = "kernel", "nfqueue"
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Bounds:
    """What every fault promises something of."""

    recover_s: float
    """From the end of the fault until the fleet is full and even again."""
    overshoot: int = RATE // 10
    """Bytes beyond limit x time + depths in any second."""
    lost_s: float = 0.0
    """Packets lost to the fault itself, as so many seconds of the canaries of all limiters."""
    lines: int = 0
    """Log lines of a daemon, without those that tell of its peers."""
    least: float = FULL
    """Of the limit, in use at least in every second from the beginning until the fleet is back."""
    known: float | None = None
    """The same for every second of the fault later than it is detected, where that is more."""


@dataclass(slots=True)
class Episode:
    """A fault that was done; times of the monotonic clock."""

    bounds: Bounds
    begin_s: float
    healed_s: float
    """When the cause was gone."""
    known_s: tuple[float, float] | None = None
    """From when the fleet knows of the fault, at the latest, and until when it goes on; where
    something is promised of that."""
    checks: list[Check] = field(default_factory=list)
    """What this fault promises besides."""


async def took_s(
    so: Callable[[], Awaitable[bool]], since_s: float, patience_s: float
) -> float | None:
    """Ask until it is so; how long after a time that was, or None: not in time."""
    with trio.move_on_after(patience_s):
        while not await so():
            await trio.sleep(_POLL_S)
        return round(time.monotonic() - since_s, 2)
    return None


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong."""

    name: str
    title: str
    act: Callable[[Scene, bool], Awaitable[Episode]]
    """Does it, and undoes it; shorter where it is told to be quick."""
    datapaths: tuple[str, ...] = (KERNEL, NFQUEUE)
    """That it can be done to."""
    prepare: Callable[[Member, Path], None] | None = None
    """How a daemon must be started for it."""
