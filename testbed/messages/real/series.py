"""A series of runs with real brokers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from testbed import provenance
from testbed.harness.schedule import Room, Task
from testbed.harness.virtual import CaseSeries
from testbed.messages.real.case import RealCase

_START_S = 10.0
"""Time that the brokers and daemons of a run take to start, and to end."""


@dataclass(frozen=True, slots=True)
class RealMessageSeries(CaseSeries[RealCase]):
    """Runs of a case with real brokers (`testbed.harness.series.Planned`).

    A run has the host for itself. It needs about half a processor, and has real-time priority; two
    would starve ordinary processes. Linux then runs these first for 50 ms of each second, and the
    publishers are late.
    """

    plane = "messages"
    compared = "brokers"
    worker = "testbed.messages.real.worker"
    code_files = (
        "drld/**/*.py", "bpf/*", "testbed/messages/*.py", "testbed/messages/real/*.py",
    )  # fmt: skip

    simulated: bool = False

    def tasks(
        self, quick: bool, room: Room, runs: Sequence[tuple[str, int]] | None = None
    ) -> list[Task]:
        """See `Planned.tasks`."""
        case = self.load(quick)
        seconds = _START_S + case.dilate * (case.warm_s + case.seconds)
        return [
            replace(task, simulated=False, alone=True, seconds=seconds)
            for task in CaseSeries.tasks(self, quick, room, runs)
        ]

    def header(self, quick: bool, setting: dict[str, str]) -> dict[str, Any]:
        """See `Planned.header`."""
        header = CaseSeries.header(self, quick, setting)
        return {**header, **provenance.provenance(), "code": self.code()}
