"""A fault, and its promises."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

import trio

from testbed.chaos.members import Member
from testbed.chaos.scene import RATE, Scene
from testbed.chaos.series import FULL
from testbed.harness.finding import Check

KERNEL, NFQUEUE = "kernel", "nfqueue"
_POLL_S = 0.05


@dataclass(slots=True)
class Episode:
    """A completed fault: its times by the monotonic clock, its promises, and its own checks."""

    begin_s: float
    healed_s: float
    """Time at which the cause was gone, s of the series."""
    _: KW_ONLY
    recover_s: float
    """Longest time from the end of the fault until the fleet is full and even again."""
    overshoot: int = RATE // 10
    """Most bytes beyond limit x time + depths in any second."""
    lost_s: float = 0.0
    """Most packets lost to the fault itself, in seconds of one canary."""
    lines: int = 0
    """Most log lines of a daemon, without those about its peers."""
    least: float = FULL
    """Least part of the limit in use in every second, from the fault until the fleet is back."""
    known_s: tuple[float, float] | None = None
    """Latest time at which the fault is detected, and its end, if `known` is promised."""
    known: float = FULL
    """Least part of the limit in use in every second of `known_s`."""
    checks: list[Check] = field(default_factory=list)


async def took_s(
    so: Callable[[], Awaitable[bool]], since_s: float, patience_s: float
) -> float | None:
    """Ask until a condition holds; return how long after `since_s` it did, or None: not in time."""
    with trio.move_on_after(patience_s):
        while not await so():
            await trio.sleep(_POLL_S)
        return time.monotonic() - since_s
    return None


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that can be carried out."""

    name: str
    title: str
    act: Callable[[Scene, bool], Awaitable[Episode]]
    """Carries the fault out and ends it; the flag makes it quick."""
    datapaths: tuple[str, ...] = (KERNEL, NFQUEUE)
    """The datapaths under which the fault is done."""
    prepare: Callable[[Member, Path], None] | None = None
    """Prepares the start of a daemon for it."""
