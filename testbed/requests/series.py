"""A series of runs of a case, for the harness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from testbed import provenance
from testbed.harness.ledger import SCHEMA
from testbed.harness.schedule import Room, Task
from testbed.harness.series import Plan
from testbed.requests.case import Case

PLANE = "requests"
_CODE = (
    "drld/requests/buckets/*.py", "drld/gossip/wire/message.py", "testbed/requests/*.py",
    "testbed/sim/network.py", "testbed/tcp/clock.py",
)  # fmt: skip
"""Files that decide what a run measures."""
_START_S = 0.3
"""Time that a run takes to start its process."""


@dataclass(frozen=True, slots=True)
class RequestSeries:
    """Runs of a case, each in virtual time (`testbed.harness.series.Planned`)."""

    name: str
    case: Case
    quick: Mapping[str, Any] | None = field(default_factory=lambda: {"repeat": 2})
    cpu_s: float = 1.0
    """Processor time of a run."""
    simulated: bool = True
    alone: bool = False

    def load(self, quick: bool) -> Case:
        """The case as it will run."""
        return replace(self.case, **((self.quick or {}) if quick else {}))

    def plan(self, quick: bool) -> Plan:
        """See `Planned.plan`."""
        case = self.load(quick)
        runs = [(name, number) for number in range(1, case.repeat + 1) for name in case.buckets]
        return Plan(runs, case.seconds)

    def tasks(
        self,
        quick: bool,
        room: Room,  # noqa: ARG002 -- no run needs the host for itself
        runs: Sequence[tuple[str, int]] | None = None,
    ) -> list[Task]:
        """See `Planned.tasks`."""
        return [
            Task(self.name, name, number, True, _START_S + self.cpu_s)
            for name, number in (self.plan(quick).runs if runs is None else runs)
        ]

    def header(self, quick: bool, setting: dict[str, str]) -> dict[str, Any]:
        """See `Planned.header`."""
        definition = asdict(self.load(quick))
        definition["allocators"] = definition.pop("buckets")
        return {
            "schema": SCHEMA, "experiment": self.name,
            "definition": {"plane": PLANE, **definition}, "limiters": [], "setting": setting,
            **provenance.provenance(simulated=True), "code": self.code(),
        }  # fmt: skip

    def code(self) -> str:
        """See `Planned.code`."""
        return provenance.digest(_CODE)

    @property
    def worker(self) -> str:
        """See `Planned.worker`."""
        return "testbed.requests.worker"
