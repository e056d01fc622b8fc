"""A series of runs with real daemons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from testbed import provenance
from testbed.harness.schedule import Room, Task
from testbed.requests.series import RequestSeries

_START_S = 15.0
"""Time that the daemons of a run take to start, and to agree."""


@dataclass(frozen=True, slots=True)
class RealSeries(RequestSeries):
    """Runs of a case with real daemons (`testbed.harness.series.Planned`)."""

    worker = "testbed.requests.real.worker"
    code_files = ("drld/**/*.py", "testbed/requests/real/*.py")

    simulated: bool = False
    alone: bool = True

    def tasks(
        self, quick: bool, room: Room, runs: Sequence[tuple[str, int]] | None = None
    ) -> list[Task]:
        """See `Planned.tasks`."""
        seconds = _START_S + self.load(quick).seconds
        return [
            replace(task, simulated=False, alone=True, seconds=seconds)
            for task in RequestSeries.tasks(self, quick, room, runs)
        ]

    def header(self, quick: bool, setting: dict[str, str]) -> dict[str, Any]:
        """See `Planned.header`."""
        header = RequestSeries.header(self, quick, setting)
        return {**header, **provenance.provenance(), "code": self.code()}
