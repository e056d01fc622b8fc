"""Carries out the runs of series (`pool.py`).

`worker.py` is the process of a run, and `ledger.py` keeps the runs, in whatever order they end. A
discarded run is repeated once; then, unless it is simulated, after all others and alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import asdict, replace
from typing import Any

from testbed.attempts import ATTEMPTS
from testbed.errors import HostError, MeasurementError
from testbed.harness import worker
from testbed.harness.ledger import Ledger
from testbed.harness.pool import Pool
from testbed.harness.progress import Board
from testbed.harness.schedule import Task
from testbed.harness.series import Planned, Setting

_AMONG_OTHERS = 2
"""Attempts at a run beside others."""
_SILENCE_S = 300.0
"""A worker on the testbed reports every second, except during the start of a large fleet."""


class Campaign:
    """All runs of some series."""

    def __init__(
        self,
        series: Sequence[Planned],
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
        """The ledgers of series in progress: all of a large campaign would not fit into memory."""
        self._pool = Pool([], setting.room, board)

    async def carry_out(self) -> None:
        """Do the missing runs; when interrupted, remove unfinished ones.

        Raises:
            HostError: the host cannot do them.
        """
        for series in self._series.values():
            book = self._setting.ledger(series, self._board)
            missing = book.missing()
            self._pool.waiting += series.tasks(self._setting.quick, self._setting.room, missing)
            if not missing:
                book.open()
        self._conclude()
        await self._pool.work_off(self._attempt, self._conclude)

    async def _attempt(self, task: Task) -> bool:
        """Carry out a run, and keep its outcome; return whether it counts."""
        book = self._book(task.series)
        answer = await self._answer(task, book.result["definition"])
        if worker.IMPOSSIBLE in answer:
            raise HostError(f"{task.name}: {answer[worker.IMPOSSIBLE]}")
        if self._series[task.series].code() != book.result["code"]:
            raise HostError("the code changed during the campaign; start again")
        if worker.RECORD in answer:
            book.add(answer[worker.RECORD])
            return True
        book.discard(task.allocator, task.repetition, answer[worker.DISCARDED])
        another = replace(task, attempt=task.attempt + 1)
        if task.attempt < _AMONG_OTHERS:
            self._pool.waiting.insert(0, another)
        elif task.attempt < ATTEMPTS and not task.simulated:
            self._pool.waiting.append(replace(another, alone=True))
        return False

    def _book(self, series: str) -> Ledger:
        """The result of a series, opened before its first run."""
        if series not in self._ledgers:
            self._ledgers[series] = self._setting.ledger(self._series[series], self._board)
            self._ledgers[series].open()
        return self._ledgers[series]

    async def _answer(self, task: Task, definition: dict[str, Any]) -> dict[str, Any]:
        """A worker's last answer."""
        setting = self._setting
        job = worker.Job(
            definition, task.allocator, task.repetition, task.simulated, setting.datapath,
            setting.links, setting.once,
        )  # fmt: skip
        module = self._series[task.series].worker
        silence_s = float("inf") if task.simulated else _SILENCE_S
        try:
            return await self._pool.ask(task, module, asdict(job), silence_s)
        except MeasurementError as error:
            return {worker.DISCARDED: f"{error}"}

    def _conclude(self) -> None:
        """Close the finished series."""
        unfinished = {task.series for task in [*self._pool.waiting, *self._pool.running]}
        for name in self._ledgers.keys() - unfinished:
            del self._ledgers[name]
        self._progressed(unfinished)
