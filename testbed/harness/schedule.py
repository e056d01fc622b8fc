"""Chooses the next run of a campaign. Pure.

- The testbed has `jobs` runs at a time. Some runs have the host for themselves; with one job, all
  runs on the testbed do.
- Simulated runs use idle processors: half of the processors beside runs on the testbed, or all.

Otherwise runs keep the order of their series.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count


@dataclass(frozen=True, slots=True)
class Task:
    """An attempt at a run, or at anything else that is a process of its own."""

    series: str
    allocator: str
    repetition: int
    simulated: bool
    seconds: float
    """Expected duration of the run."""
    alone: bool = False
    """Whether no other run may be beside it."""
    attempt: int = 1

    @property
    def name(self) -> str:
        """The run in words."""
        return f"{self.series} {self.allocator} {self.repetition}"


@dataclass(frozen=True, slots=True)
class Room:
    """The numbers of simultaneous runs."""

    jobs: int
    """Runs on the testbed at a time."""
    processors: int


def choose(waiting: Sequence[Task], running: Sequence[Task], room: Room) -> Task | None:
    """The task to start now; None if a running one must end first."""
    if any(task.alone for task in running):
        return None
    if not running:
        for task in waiting:
            if task.alone:
                return task
    # The first of each: there may be thousands.
    shared = next((task for task in waiting if not task.alone and not task.simulated), None)
    busy = sum(not task.simulated for task in running)
    if shared is not None and busy < room.jobs:
        return shared
    beside = max(room.processors // 2, 1)
    most = beside if shared is not None or busy else room.processors
    if len(running) - busy < most:
        return next((task for task in waiting if task.simulated), None)
    return None


def time_left(
    waiting: Sequence[Task],
    running: Sequence[tuple[Task, float]],
    room: Room,
    duration: Callable[[Task], float],
) -> float:
    """Seconds until the end of all tasks, by simulating the schedule.

    `running` has each task's time so far; `duration` is the expected duration of a task.
    """
    order = count()
    ends = [(max(duration(task) - since_s, 0.0), next(order), task) for task, since_s in running]
    heapq.heapify(ends)
    left = list(waiting)
    now_s = 0.0
    while left or ends:
        task = choose(left, [end[2] for end in ends], room)
        if task is not None:
            left.remove(task)
            heapq.heappush(ends, (now_s + duration(task), next(order), task))
        else:
            now_s, _, _ = heapq.heappop(ends)
    return now_s
