"""A series of runs in virtual time whose definition is a case: a dataclass of plain values.

A plane has its own kind of case, and of series; what the series' runs compare, buckets or numbers
of brokers, takes the place of allocators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from testbed import provenance
from testbed.harness.ledger import SCHEMA
from testbed.harness.schedule import Room, Task
from testbed.harness.series import Plan

_START_S = 0.3
"""Time that a run takes to start its process."""


class CaseLike(Protocol):
    """The properties that every case has."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def repeat(self) -> int:
        """Runs of each that is compared."""

    @property
    def seconds(self) -> float:
        """Length of a run, virtual time."""


C = TypeVar("C", bound=CaseLike)


@dataclass(frozen=True, slots=True)
class CaseSeries(Generic[C]):
    """Runs of a case, each in virtual time (`testbed.harness.series.Planned`)."""

    plane: ClassVar[str]
    compared: ClassVar[str]
    """The field of a case with the names of what its runs compare."""
    worker: ClassVar[str] = "testbed.harness.virtual_worker"
    """See `Planned.worker`."""
    code_files: ClassVar[tuple[str, ...]]
    """Files that decide what a run measures."""

    name: str
    case: C
    quick: Mapping[str, Any] | None = field(default_factory=lambda: {"repeat": 2})
    cpu_s: float = 1.0
    """Processor time of a run."""
    simulated: bool = True
    alone: bool = False

    def load(self, quick: bool) -> C:
        """The case as it will run."""
        return replace(self.case, **((self.quick or {}) if quick else {}))

    def plan(self, quick: bool) -> Plan:
        """See `Planned.plan`."""
        case = self.load(quick)
        names = getattr(case, self.compared)
        runs = [(name, number) for number in range(1, case.repeat + 1) for name in names]
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
        definition["allocators"] = definition.pop(self.compared)
        return {
            "schema": SCHEMA, "experiment": self.name,
            "definition": {"plane": self.plane, **definition}, "limiters": [], "setting": setting,
            **provenance.provenance(simulated=True), "code": self.code(),
        }  # fmt: skip

    def code(self) -> str:
        """See `Planned.code`."""
        return provenance.digest(self.code_files)
