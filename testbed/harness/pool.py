"""Carries out tasks, several at a time, each as a process of its own, and shows their progress.

`schedule.py` chooses the next task. A process gets a job, and answers in JSON lines (`STEP`, and
what its module says). It is asked to end when its task is interrupted.
"""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import trio

from testbed import crew, netns
from testbed.harness.progress import Board
from testbed.harness.schedule import Room, Task, choose, time_left

STEP = "step"
"""An answer: the present step of a task, in words."""
_GRACE_S = 60.0
"""Time for an interrupted process to remove everything."""
_SHOW_S = 1.0
_ESTIMATE_S = 10.0


class Pool:
    """Tasks that wait, and tasks in progress."""

    def __init__(self, tasks: Iterable[Task], room: Room, board: Board) -> None:
        self.waiting = list(tasks)
        """May be changed at any time: a task that comes back is another attempt."""
        self.running: dict[Task, tuple[float, str]] = {}
        """The begin of each running task, s, and its present step."""
        self._room = room
        self._board = board
        self._done = 0
        self._taken: dict[bool, tuple[float, float]] = {}
        """Expected and real duration of the finished tasks, s, by `Task.simulated`."""
        self._end_s = 0.0
        self._estimated_s = float("-inf")
        self._logs: Path

    async def work_off(
        self, carry_out: Callable[[Task], Awaitable[bool]], ended: Callable[[], None] | None = None
    ) -> None:
        """Carry out all tasks; when interrupted, have their processes remove everything.

        `carry_out` returns whether a task is done. `ended` is called after each.
        """
        on_testbed = not all(task.simulated for task in self.waiting)
        with tempfile.TemporaryDirectory(prefix="drld-pool-") as logs:
            self._logs = Path(logs)
            try:
                await self._work(carry_out, ended)
            finally:
                if on_testbed:
                    # A killed process has not cleaned up.
                    netns.remove_stale()
                self._board.end()

    async def _work(
        self, carry_out: Callable[[Task], Awaitable[bool]], ended: Callable[[], None] | None
    ) -> None:
        tell, wait = trio.open_memory_channel[tuple[Task, bool]](0)

        async def work(task: Task) -> None:
            await tell.send((task, await carry_out(task)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._show)
            while self.waiting or self.running:
                task = choose(self.waiting, list(self.running), self._room)
                if task is not None:
                    self.waiting.remove(task)
                    text = "simulating" if task.simulated else "starting"
                    self.running[task] = trio.current_time(), text
                    nursery.start_soon(work, task)
                    continue
                task, done = await wait.receive()
                begun_s, _ = self.running.pop(task)
                if done:
                    self._note(task, trio.current_time() - begun_s)
                if ended is not None:
                    ended()
            nursery.cancel_scope.cancel()

    def _note(self, task: Task, took_s: float) -> None:
        """Count a task that is done."""
        self._done += 1
        planned_s, all_s = self._taken.get(task.simulated, (0.0, 0.0))
        self._taken[task.simulated] = planned_s + task.seconds, all_s + took_s
        # With thousands of short tasks an estimate for each would take longer than they do.
        last = not (self.waiting or self.running)
        if last or trio.current_time() > self._estimated_s + _SHOW_S:
            self._estimate()
        self._board.note(f"{task.name}: {took_s:.0f} s; {self._head()}")

    async def ask(
        self,
        task: Task,
        module: str,
        job: object,
        silence_s: float,
        more: Callable[[dict[str, Any]], bool] = lambda _: False,
    ) -> dict[str, Any]:
        """The last answer of a module, as a program, to its job, for a task in progress.

        `silence_s` is the longest time between two answers. `more` gets each answer that is no
        step, and says whether another follows.

        Raises:
            MeasurementError: the process reported an error, ended early, or was silent.
        """
        log = self._logs / f"{task.name.replace('/', '-')}-{task.attempt}.log"
        async with crew.worker(task.name, module, job, log, _GRACE_S) as child:
            while STEP in (answer := await child.receive(silence_s)) or more(answer):
                if STEP in answer:
                    self.running[task] = self.running[task][0], answer[STEP]
            return answer

    async def _show(self) -> None:
        while True:
            if trio.current_time() > self._estimated_s + _ESTIMATE_S:
                self._estimate()
            now_s = trio.current_time()
            lines = [
                f"  {task.name}: {text} ({now_s - begun_s:.0f} s)"
                for task, (begun_s, text) in self.running.items()
            ]
            self._board.show([self._head(), *lines])
            await trio.sleep(_SHOW_S)

    def _estimate(self) -> None:
        """Estimate the end of all tasks."""
        now_s = self._estimated_s = trio.current_time()
        running = [(task, now_s - begun_s) for task, (begun_s, _) in self.running.items()]
        self._end_s = now_s + time_left(self.waiting, running, self._room, self._expected_s)

    def _expected_s(self, task: Task) -> float:
        planned_s, took_s = self._taken.get(task.simulated, (0.0, 0.0))
        return task.seconds * (took_s / planned_s if planned_s else 1.0)

    def _head(self) -> str:
        left_s = max(self._end_s - trio.current_time(), 0.0)
        count = self._done + len(self.waiting) + len(self.running)
        return f"{self._done} of {count} runs, about {duration(left_s)} left"


def duration(seconds: float) -> str:
    """Hours and minutes; seconds below two minutes."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
