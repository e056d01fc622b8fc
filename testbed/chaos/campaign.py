"""The stages of one call (`testbed.harness.pool`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from testbed.chaos import stage
from testbed.chaos.report import broken_of
from testbed.chaos.stage import Job
from testbed.errors import MeasurementError
from testbed.harness.pool import Pool
from testbed.harness.progress import Board
from testbed.harness.schedule import Room, Task

_SILENCE_S = 240.0


class Campaign:
    """The stages of one call of the suite."""

    def __init__(self, jobs: Sequence[Job], at_a_time: int, board: Board) -> None:
        self.stages: list[dict[str, Any]] = [
            {"faults": job.faults, "datapath": job.datapath, "records": [], "left": [],
             "error": None}
            for job in jobs
        ]  # fmt: skip
        """The record of each stage, in order."""
        self._jobs = {
            Task(job.datapath, job.fabric, number, False, job.expected_s): job
            for number, job in enumerate(jobs, 1)
        }
        self._board = board
        self._pool = Pool(self._jobs, Room(at_a_time, 1), board)

    async def carry_out(self) -> None:
        """Run the stages; when interrupted, clean up."""
        await self._pool.work_off(self._stage)

    async def _stage(self, task: Task) -> bool:
        job, known = self._jobs[task], self.stages[task.repetition - 1]

        def more(answer: dict[str, Any]) -> bool:
            if stage.RECORD in answer:
                record = answer[stage.RECORD]
                known["records"].append(record)
                verdict = "BROKEN" if broken_of(record) else "ok"
                self._board.note(f"{record['fault']} ({record['datapath']}): {verdict}")
            return stage.LEFT not in answer

        try:
            answer = await self._pool.ask(task, stage.__name__, asdict(job), _SILENCE_S, more)
            known["left"] = answer[stage.LEFT]
        except MeasurementError as error:
            known["error"] = f"{error}"
            self._board.note(f"{error}")
        return True
