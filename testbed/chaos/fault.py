"""A fault, its promises, and its measurements."""

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
    """The promises of every fault."""

    recover_s: float
    """Time from the end of the fault until the fleet is full and even again."""
    overshoot: int = RATE // 10
    """Bytes beyond limit x time + depths in any second."""
    lost_s: float = 0.0
    """Packets lost to the fault itself, in seconds of the canaries of all limiters."""
    lines: int = 0
    """Log lines of a daemon, without those about its peers."""
    least: float = FULL
    """Least part of the limit in use in every second, from the fault until the fleet is back."""
    known: float | None = None
    """Least part of the limit in use in every second after detection of the fault, if larger."""


@dataclass(slots=True)
class Episode:
    """A completed fault; times of the monotonic clock."""

    bounds: Bounds
    begin_s: float
    healed_s: float
    """When the cause was gone."""
    known_s: tuple[float, float] | None = None
    """The latest time of the fault's detection, and the fault's end, if `Bounds.known` is
    promised."""
    checks: list[Check] = field(default_factory=list)
    """Checks of this fault's own promises."""


async def took_s(
    so: Callable[[], Awaitable[bool]], since_s: float, patience_s: float
) -> float | None:
    """Ask until a condition holds; return the time since a given time, or None: not in time."""
    with trio.move_on_after(patience_s):
        while not await so():
            await trio.sleep(_POLL_S)
        return round(time.monotonic() - since_s, 2)
    return None


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that can be carried out."""

    name: str
    title: str
    act: Callable[[Scene, bool], Awaitable[Episode]]
    """Carries the fault out and ends it; the flag makes it quick."""
    datapaths: tuple[str, ...] = (KERNEL, NFQUEUE)
    """Datapaths that it applies to."""
    prepare: Callable[[Member, Path], None] | None = None
    """Prepares the start of a daemon for it."""
