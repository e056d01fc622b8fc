"""Carries out the runs of series, several at a time, each as a process of its own.

`schedule.py` chooses the next run, `worker.py` is the process, and `ledger.py` keeps the runs,
whatever order they end in. A discarded run is repeated once; then, unless it is simulated, after
all others and alone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence, Set
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import trio

from testbed import crew, netns, provenance
from testbed.attempts import ATTEMPTS
from testbed.errors import HostError, MeasurementError
from testbed.harness import worker
from testbed.harness.ledger import Ledger
from testbed.harness.progress import Board
from testbed.harness.schedule import Task, choose, time_left
from testbed.harness.series import Series, Setting, duration

_AMONG_OTHERS = 2
"""Attempts at a run beside others."""
_SILENCE_S = 300.0
"""A worker on the testbed reports every second, except during the start of a large fleet."""
_GRACE_S = 60.0
"""Time for an interrupted worker to remove everything."""
_SHOW_S = 1.0
_ESTIMATE_S = 10.0


@dataclass(slots=True)
class _Attempt:
    """A run in progress."""

    begun_s: float
    text: str


class Campaign:
    """All runs of some series."""

    def __init__(
        self,
        series: Sequence[Series],
        setting: Setting,
        board: Board,
        progressed: Callable[[Set[str]], None] = lambda _: None,
    ) -> None:
        """`progressed` is called with the names of the unfinished series, first before all runs."""
        self._series = {one.name: one for one in series}
        self._setting = setting
        self._board = board
        self._progressed = progressed
        self._ledgers: dict[str, Ledger] = {}
        """Those of series in progress: all runs of a large campaign would not fit into memory."""
        self._waiting: list[Task] = []
        self._running: dict[Task, _Attempt] = {}
        self._done = self._all = 0
        self._taken: dict[bool, tuple[float, float]] = {}
        """By `Task.simulated`: expected and real duration of the finished runs, s."""
        self._end_s = 0.0
        self._estimated_s = float("-inf")
        self._logs: Path

    async def carry_out(self) -> None:
        """Do the missing runs; when interrupted, remove unfinished ones.

        Raises:
            HostError: the host cannot do them.
        """
        for series in self._series.values():
            book = self._setting.ledger(series, self._board)
            missing = book.missing()
            self._waiting += series.tasks(self._setting.quick, self._setting.room, missing)
            if not missing:
                book.open()
        self._all = len(self._waiting)
        self._conclude()
        with tempfile.TemporaryDirectory(prefix="drld-campaign-") as logs:
            self._logs = Path(logs)
            try:
                await self._work()
            finally:
                if not all(series.simulated for series in self._series.values()):
                    # A killed worker has not cleaned up.
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
        """Carry out a run, and keep its outcome."""
        book = self._book(task.series)
        answer = await self._answer(task, book.result["definition"])
        took_s = trio.current_time() - self._running[task].begun_s
        if worker.IMPOSSIBLE in answer:
            raise HostError(f"{_name(task)}: {answer[worker.IMPOSSIBLE]}")
        if provenance.code(simulated=task.simulated) != book.result["code"]:
            raise HostError("the code changed during the campaign; start again")
        if worker.RECORD in answer:
            book.add(answer[worker.RECORD])
            self._done += 1
            planned_s, all_s = self._taken.get(task.simulated, (0.0, 0.0))
            self._taken[task.simulated] = planned_s + task.seconds, all_s + took_s
            self._estimate()
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
        """The result of a series, opened before its first run."""
        if series not in self._ledgers:
            self._ledgers[series] = self._setting.ledger(self._series[series], self._board)
            self._ledgers[series].open()
        return self._ledgers[series]

    async def _answer(self, task: Task, definition: dict[str, Any]) -> dict[str, Any]:
        """A worker's last answer."""
        setting = self._setting
        traces = None if setting.traces is None else str(setting.traces)
        job = worker.Job(
            definition, task.allocator, task.repetition, task.simulated, setting.datapath,
            setting.links, setting.once, traces,
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
        """Close the finished series."""
        unfinished = {task.series for task in [*self._waiting, *self._running]}
        for name in self._ledgers.keys() - unfinished:
            del self._ledgers[name]
        self._progressed(unfinished)

    async def _show(self) -> None:
        while True:
            if trio.current_time() > self._estimated_s + _ESTIMATE_S:
                self._estimate()
            now_s = trio.current_time()
            lines = [
                f"  {_name(task)}: {attempt.text} ({now_s - attempt.begun_s:.0f} s)"
                for task, attempt in self._running.items()
            ]
            self._board.show([self._head(), *lines])
            await trio.sleep(_SHOW_S)

    def _estimate(self) -> None:
        """Estimate the end of the campaign."""
        now_s = self._estimated_s = trio.current_time()
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
