"""An experiment: its groups of flows and its limiters (`testbed.experiment_file` reads it)."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from testbed import events
from testbed.datagrams import UdpGroup
from testbed.events import Event
from testbed.experiment_tables import NS_PER_S, START_SPREAD_NS, ExperimentTable, FlowsTable
from testbed.workload import WebGroup


@dataclass(frozen=True, slots=True)
class Group:
    """A group of flows, with all defaults filled in."""

    name: str
    limiter: str
    table: FlowsTable
    lives_ns: tuple[tuple[int, int], ...] = ()
    """Start and end of each flow, if the flows do not live together."""


@dataclass(frozen=True, slots=True)
class Flow:
    """A TCP connection of a group."""

    id: str
    group: str
    limiter: str
    start_ns: int
    """Start of the flow, from the start of the run."""
    end_ns: int


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment that can be run."""

    table: ExperimentTable
    definition: dict[str, Any]
    """The document with all overrides: enough to run the experiment again."""
    groups: tuple[Group, ...]
    """The groups of long flows."""
    web: tuple[WebGroup, ...]
    udp: tuple[UdpGroup, ...]
    limiters: tuple[str, ...]

    @property
    def sources(self) -> tuple[Group | WebGroup, ...]:
        """Every source of TCP traffic."""
        return (*self.groups, *self.web)

    @property
    def runs(self) -> list[tuple[str, int]]:
        """Allocator and repetition of all runs, in their order."""
        # Allocators alternate, so that a change of the machine's speed affects all of them.
        repetitions = range(1, self.table.repeat + 1)
        return [(allocator, each) for each in repetitions for allocator in self.table.allocators]

    @property
    def duration_ns(self) -> int:
        """Length of a run, its warm-up included."""
        return round(self.table.seconds * NS_PER_S)

    @property
    def events(self) -> list[Event]:
        """The events, in the order of time."""
        return events.schedule(self.table.events, self.duration_ns)

    def flows(self, group: Group, rng: Random) -> list[Flow]:
        """The group's connections, each start moved by up to `spread` at random."""
        table = group.table
        period = table.period or self.duration_ns
        found = []
        if group.lives_ns:
            for index, (begin, until) in enumerate(group.lives_ns, 1):
                start = begin + rng.randrange(START_SPREAD_NS)
                end = min(until, self.duration_ns)
                if start < end:
                    found.append(
                        Flow(f"{group.name}.{index}", group.name, group.limiter, start, end)
                    )
            return found
        for cycle, begin in enumerate(range(0, self.duration_ns, period)):
            end = self.duration_ns if table.end is None else begin + table.end
            for index in range(table.count):
                start = begin + table.start + rng.randrange(table.spread)
                if start < min(end, self.duration_ns):
                    again = f"-{cycle + 1}" if table.period else ""
                    found.append(
                        Flow(
                            f"{group.name}.{index + 1}{again}",
                            group.name,
                            group.limiter,
                            start,
                            min(end, self.duration_ns),
                        )
                    )
        return found
