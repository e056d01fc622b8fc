"""Stages, several at a time, each as a process of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import trio

from testbed import netns
from testbed.chaos import stage
from testbed.chaos.report import broken_of
from testbed.chaos.stage import Job
from testbed.crew import worker
from testbed.errors import MeasurementError
from testbed.harness.progress import Board

_SILENCE_S = 240.0
_GRACE_S = 40.0
"""Time for an interrupted stage to clean up."""


class Campaign:
    """All stages of one call."""

    def __init__(self, jobs: Sequence[Job], at_a_time: int, board: Board) -> None:
        self.stages: list[dict[str, Any]] = [
            {"faults": job.faults, "datapath": job.datapath, "records": [], "left": [],
             "error": None}
            for job in jobs
        ]  # fmt: skip
        """The record of each stage, in order."""
        self._jobs = jobs
        self._room = trio.CapacityLimiter(at_a_time)
        self._board = board
        self._doing: dict[int, str] = {}

    async def carry_out(self) -> None:
        """Run the stages; when interrupted, clean up."""
        with tempfile.TemporaryDirectory(prefix="drld-chaos-") as logs:
            try:
                async with trio.open_nursery() as nursery:
                    for index in range(len(self._jobs)):
                        nursery.start_soon(self._stage, index, Path(logs) / f"{index}.log")
            finally:
                # A killed stage has not cleaned up.
                netns.remove_stale()
                self._board.end()

    async def _stage(self, index: int, log: Path) -> None:
        name, job, known = f"stage {index + 1}", self._jobs[index], self.stages[index]
        async with self._room:
            try:
                async with worker(name, stage.__name__, asdict(job), log, _GRACE_S) as child:
                    while stage.LEFT not in (answer := await child.receive(_SILENCE_S)):
                        if stage.STEP in answer:
                            self._doing[index] = f"{job.datapath}: {answer[stage.STEP]}"
                        else:
                            self._add(known["records"], answer[stage.RECORD])
                        self._show()
                    known["left"] = answer[stage.LEFT]
            except MeasurementError as error:
                known["error"] = f"{error}"
                self._board.note(f"{error}")
            self._doing.pop(index, None)
            self._show()

    def _add(self, records: list[dict[str, Any]], record: dict[str, Any]) -> None:
        records.append(record)
        verdict = "BROKEN" if broken_of(record) else "ok"
        self._board.note(f"{record['fault']} ({record['datapath']}): {verdict}")

    def _show(self) -> None:
        self._board.show([text for _, text in sorted(self._doing.items())])
