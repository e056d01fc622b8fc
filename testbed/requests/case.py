"""A study of buckets as data, and a series of its runs for the harness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from drld.requests.buckets.policy import Policy
from testbed import provenance
from testbed.harness.ledger import SCHEMA
from testbed.harness.schedule import Room, Task
from testbed.harness.series import Plan

PLANE = "requests"
_CODE = (
    "drld/requests/buckets/*.py", "drld/gossip/wire/message.py", "testbed/requests/*.py",
    "testbed/sim/network.py", "testbed/tcp/clock.py",
)  # fmt: skip
"""Files that decide what a run measures."""
_START_S = 2.0
"""Time that a run takes to start its process."""
NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Case:
    """Data, buckets, fleet and paths. Defaults are tables 4.1 and 4.2 of the thesis."""

    data: str
    """One of `workload.DATA_SETS`."""
    buckets: tuple[str, ...]
    """Of `variants.VARIANTS`."""
    repeat: int = 10
    seconds: float = 60.0
    capacity: int = 300
    rate: int = 3
    """Tokens each `per_s`: 0.001 c a second."""
    per_s: int = 10
    nodes: int = 30
    interval_ms: int = 300
    duty: float = 0.4
    """ON time of data set B's users; 0: uniform arrivals."""
    delay_ms: int = 0
    jitter_ms: int = 0
    loss: float = 0.0
    duplicate: float = 0.0
    repeat_ms: int = 0
    """Unacknowledged news are told again after this time; 0: never, as in the thesis."""
    cut: tuple[int, int] = (0, 0)
    """From and until when a third of the limiters is cut off, ms."""
    skewed_s: int = 0
    """How far the first limiter's clock is ahead."""

    @property
    def policy(self) -> Policy:
        """Of every user."""
        return Policy(self.capacity, self.rate, self.per_s * NS_PER_S)

    @property
    def rate_s(self) -> float:
        """Tokens/s."""
        return self.rate / self.per_s


def case_of(definition: Mapping[str, Any]) -> Case:
    """The case of a definition (`RequestSeries.header`)."""
    values: dict[str, Any] = {**definition, "buckets": tuple(definition["allocators"])}
    values["cut"] = tuple(values["cut"])
    del values["plane"], values["allocators"]
    return Case(**values)


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
