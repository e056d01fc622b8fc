"""Carrying out the runs of figures, several at a time, each as a process of its own.

`schedule.py` says which run is next, `worker.py` is the process, and a series' runs go into its
result (`suite.Ledger`) in whatever order they end. A figure is concluded as soon as all its series
are done. A run that does not count is done once more; then, unless it is simulated, after all
others and alone.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import trio

from testbed import crew, netns, provenance
from testbed.attempts import ATTEMPTS
from testbed.errors import HostError, MeasurementError
from testbed.harness import worker
from testbed.harness.figure import Figure
from testbed.harness.progress import Board
from testbed.harness.runner import (
    Setting,
    conclude,
    duration,
    ledger,
    series_of,
    tasks_of,
)
from testbed.harness.schedule import Task, choose, time_left
from testbed.harness.suite import Ledger

_AMONG_OTHERS = 2
"""Attempts at a run that others may run beside."""
_SILENCE_S = 300.0
"""A worker on the testbed says something every second, but for the start of a large fleet."""
_GRACE_S = 60.0
"""For a worker that is interrupted to remove everything."""
_LOOK_S = 1.0
_RECKON_S = 10.0
_LOW_PRIORITY = 10


@dataclass(slots=True)
class _Attempt:
    """A run that is going on."""

    begun_s: float
    text: str


class Campaign:
    """All runs that figures need."""

    def __init__(self, figures: Sequence[Figure], setting: Setting, board: Board) -> None:
        self._figures = [figure for figure in figures if figure.series(setting.quick)]
        self._setting = setting
        self._board = board
        self._series = {one.name: one for one in series_of(figures, setting.quick)}
        self._ledgers: dict[str, Ledger] = {}
        self._waiting: list[Task] = []
        self._running: dict[Task, _Attempt] = {}
        self._done = self._all = 0
        self._taken: dict[bool, tuple[float, float]] = {}
        """Of runs in the simulator or not: seconds that they were to take, and did."""
        self._end_s = 0.0
        self._reckoned_s = float("-inf")
        self._logs: Path

    async def carry_out(self) -> None:
        """Do what is missing; interrupted, remove what is half done.

        Raises:
            HostError: the host cannot do it.
        """
        room = self._setting.room
        for series in self._series.values():
            book = ledger(series, self._setting, self._board)
            self._waiting += tasks_of(series, self._setting.quick, room, book.missing())
            if not book.missing():
                book.open()
        self._all = len(self._waiting)
        self._conclude()
        with tempfile.TemporaryDirectory(prefix="drld-reproduce-") as logs:
            self._logs = Path(logs)
            try:
                await self._work()
            finally:
                # A worker that had to be killed could not do that.
                netns.remove_stale()
                self._board.end()

    async def _work(self) -> None:
        ended, wait = trio.open_memory_channel[Task](0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._show)
            while self._waiting or self._running:
                running = list(self._running)
                task = choose(self._waiting, running, self._setting.room)
                if task is not None:
                    self._waiting.remove(task)
                    text = "simulating" if task.simulated else "starting"
                    self._running[task] = _Attempt(trio.current_time(), text)
                    nursery.start_soon(self._attempt, task, ended)
                    continue
                task = await wait.receive()
                del self._running[task]
                self._conclude()
            nursery.cancel_scope.cancel()

    async def _attempt(self, task: Task, ended: trio.MemorySendChannel[Task]) -> None:
        """Carry out a run, and enter what came of it."""
        book = self._book(task.series)
        answer = await self._answer(task, book.result["definition"])
        took_s = trio.current_time() - self._running[task].begun_s
        if worker.IMPOSSIBLE in answer:
            raise HostError(f"{_name(task)}: {answer[worker.IMPOSSIBLE]}")
        if provenance.code(simulated=task.simulated) != book.result["code"]:
            raise HostError("the code changed while it was measured; start again")
        if worker.RECORD in answer:
            book.add(answer[worker.RECORD])
            self._done += 1
            planned_s, all_s = self._taken.get(task.simulated, (0.0, 0.0))
            self._taken[task.simulated] = planned_s + task.seconds, all_s + took_s
            self._reckon()
            self._board.note(f"{_name(task)}: {took_s:.0f} s; {self._head()}")
        else:
            book.discard(task.allocator, task.repetition, answer[worker.DISCARDED])
            self._try_again(task)
        await ended.send(task)

    def _try_again(self, task: Task) -> None:
        another = replace(task, attempt=task.attempt + 1)
        if task.attempt < _AMONG_OTHERS:
            self._waiting.insert(0, another)
        elif task.attempt < ATTEMPTS and not task.simulated:
            self._waiting.append(replace(another, alone=True))
        else:
            self._all -= 1

    def _book(self, series: str) -> Ledger:
        """The result of a series, from its first run on."""
        if series not in self._ledgers:
            self._ledgers[series] = ledger(self._series[series], self._setting, self._board)
            self._ledgers[series].open()
        return self._ledgers[series]

    async def _answer(self, task: Task, definition: dict[str, Any]) -> dict[str, Any]:
        """What a worker has to say in the end."""
        job = worker.Job(
            definition, task.allocator, task.repetition, task.simulated, self._setting.datapath,
            self._setting.links, self._setting.once,
        )  # fmt: skip
        silence_s = float("inf") if task.simulated else _SILENCE_S
        log = self._logs / f"{_name(task).replace('/', '-')}-{task.attempt}.log"
        try:
            async with crew.worker(
                _name(task), worker.__name__, asdict(job), log, _GRACE_S
            ) as child:
                while worker.STEP in (answer := await child.receive(silence_s)):
                    self._running[task].text = answer[worker.STEP]
                return answer
        except MeasurementError as error:
            return {worker.DISCARDED: f"{error}"}

    def _conclude(self) -> None:
        """Let go of the series that are done, and conclude the figures that have all theirs."""
        missing = {task.series for task in [*self._waiting, *self._running]}
        for name in self._ledgers.keys() - missing:
            del self._ledgers[name]
        for figure in list(self._figures):
            if missing.isdisjoint(one.name for one in figure.series(self._setting.quick)):
                with ThreadPoolExecutor(1, initializer=_be_patient) as patient:
                    patient.submit(conclude, figure, self._setting).result()
                self._figures.remove(figure)

    async def _show(self) -> None:
        while True:
            if trio.current_time() > self._reckoned_s + _RECKON_S:
                self._reckon()
            now_s = trio.current_time()
            lines = [
                f"  {_name(task)}: {attempt.text} ({now_s - attempt.begun_s:.0f} s)"
                for task, attempt in self._running.items()
            ]
            self._board.show([self._head(), *lines])
            await trio.sleep(_LOOK_S)

    def _reckon(self) -> None:
        """Work out when everything will be done."""
        now_s = self._reckoned_s = trio.current_time()
        running = [(task, now_s - attempt.begun_s) for task, attempt in self._running.items()]
        self._end_s = now_s + time_left(
            self._waiting, running, self._setting.room, self._expected_s
        )

    def _expected_s(self, task: Task) -> float:
        planned_s, took_s = self._taken.get(task.simulated, (0.0, 0.0))
        return task.seconds * (took_s / planned_s if planned_s else 1.0)

    def _head(self) -> str:
        left_s = max(self._end_s - trio.current_time(), 0.0)
        return f"{self._done} of {self._all} runs, about {duration(left_s)} left"


def _name(task: Task) -> str:
    return f"{task.series} {task.allocator} {task.repetition}"


def _be_patient() -> None:
    """Runs that go on meanwhile come first. Of this thread alone: only root may come back."""
    os.setpriority(os.PRIO_PROCESS, 0, max(os.getpriority(os.PRIO_PROCESS, 0), _LOW_PRIORITY))
