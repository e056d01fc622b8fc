"""A series of runs whose definition is a case: a dataclass of plain values.

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
    worker: ClassVar[str] = "testbed.harness.case_worker"
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
        room: Room,  # noqa: ARG002 -- it decides nothing here
        runs: Sequence[tuple[str, int]] | None = None,
    ) -> list[Task]:
        """See `Planned.tasks`."""
        seconds, alone = self.run_s(quick), not self.simulated
        return [
            Task(self.name, name, number, self.simulated, seconds, alone)
            for name, number in (self.plan(quick).runs if runs is None else runs)
        ]

    def run_s(self, quick: bool) -> float:  # noqa: ARG002 -- for runs that take their own time
        """The expected duration of a run, s."""
        return _START_S + self.cpu_s

    def header(self, quick: bool, setting: dict[str, str]) -> dict[str, Any]:
        """See `Planned.header`."""
        definition = asdict(self.load(quick))
        definition["allocators"] = definition.pop(self.compared)
        return {
            "schema": SCHEMA, "experiment": self.name,
            "definition": {"plane": self.plane, "compared": self.compared, **definition},
            "limiters": [], "setting": setting,
            **provenance.provenance(simulated=self.simulated), "code": self.code(),
        }  # fmt: skip

    def code(self) -> str:
        """See `Planned.code`."""
        return provenance.digest(self.code_files)


@dataclass(frozen=True, slots=True)
class RealCaseSeries(CaseSeries[C]):
    """Runs of a case with real processes. Each run has the host for itself."""

    start_s: ClassVar[float]
    """Time that the processes of a run take to start, and to end, s."""

    simulated: bool = False
    alone: bool = True

    def run_s(self, quick: bool) -> float:
        """See `CaseSeries`."""
        return self.start_s + self.load(quick).seconds
