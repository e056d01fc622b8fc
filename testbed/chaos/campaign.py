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
            {
                "faults": job.faults,
                "datapath": job.datapath,
                "records": [],
                "left": [],
                "error": None,
            }
            for job in jobs
        ]
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
        async with self._room:
            job = asdict(self._jobs[index])
            try:
                async with worker(
                    f"stage {index + 1}", stage.__name__, job, log, _GRACE_S
                ) as child:
                    while stage.END not in (answer := await child.receive(_SILENCE_S)):
                        self._take(index, answer)
            except MeasurementError as error:
                self.stages[index]["error"] = f"{error}"
                self._board.note(f"{error}")
            self._doing.pop(index, None)
            self._show()

    def _take(self, index: int, answer: dict[str, Any]) -> None:
        known = self.stages[index]
        for key in (stage.LEFT, stage.FAILED):
            known[key] = answer.get(key, known[key])
        if stage.STEP in answer:
            self._doing[index] = answer[stage.STEP]
        if stage.RECORD in answer:
            record = answer[stage.RECORD]
            known["records"].append(record)
            found = broken_of(record)
            verdict = "BROKEN" if found else "ok"
            self._board.note(f"{record['fault']} ({record['datapath']}): {verdict}")
        self._show()

    def _show(self) -> None:
        self._board.show(
            [f"{self._jobs[index].datapath}: {text}" for index, text in sorted(self._doing.items())]
        )
