"""A series of runs: an experiment, run for each allocator as often as it says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from testbed import experiment_file, provenance
from testbed.experiment import Experiment
from testbed.harness.ledger import Ledger, header
from testbed.harness.progress import Board
from testbed.harness.schedule import Room, Task, time_left

_START_S = 1.0
"""Time that a simulated run takes to start its process."""


class Plan(NamedTuple):
    """The runs that a series is about to do."""

    runs: list[tuple[str, int]]
    """Allocator and repetition of all runs, in their order."""
    seconds: float
    """Length of a run."""


class Planned(Protocol):
    """A series of any kind of runs. What is compared is called an allocator in all of them."""

    @property
    def name(self) -> str:
        """Name of the series' directory. Figures that name the same series use the same runs."""

    @property
    def quick(self) -> Mapping[str, Any] | None:
        """Replacements for a quick run; None: a quick run leaves the series out."""

    @property
    def simulated(self) -> bool:
        """Whether it takes virtual time, and not the testbed."""

    @property
    def alone(self) -> bool:
        """Whether no other run may be beside its runs on the testbed."""

    def plan(self, quick: bool) -> Plan:
        """The runs of the series."""

    def tasks(
        self, quick: bool, room: Room, runs: Sequence[tuple[str, int]] | None = None
    ) -> list[Task]:
        """Tasks for these runs, (allocator, repetition), or for all."""

    def header(self, quick: bool, setting: dict[str, str]) -> dict[str, Any]:
        """The header of its result; `setting`: the user's choices."""

    def code(self) -> str:
        """A digest of the files that decide what a run measures."""

    @property
    def worker(self) -> str:
        """The module that carries out a run as a process; its answers are those of `worker.py`."""


@dataclass(frozen=True, slots=True)
class Series:
    """An experiment with changes; figures may share one."""

    name: str
    """Name of the series' directory. Figures that name the same series use the same runs."""
    experiment: str
    """A file, or a name in testbed/experiments."""
    full: Mapping[str, Any] = field(default_factory=dict)
    """Replacements of the experiment's top-level keys."""
    quick: Mapping[str, Any] | None = field(default_factory=dict)
    """Further replacements for a quick run; None: a quick run leaves the series out."""
    settings: tuple[str, ...] = ()
    """Replacements of keys in tables, such as `gossip.interval=500ms`."""
    simulated: bool = False
    """Whether it runs in the simulator, and not on the testbed."""
    pace: float = 1.0
    """Seconds of processor time for a simulated second; of no account on the testbed."""
    paces: Mapping[str, float] = field(default_factory=dict)
    """The pace of some allocators, where it differs."""
    overhead_s: float = 5.0
    """The duration of a run's start and end on the testbed, s."""
    alone: bool = False
    """Whether no other run may be beside it on the testbed: it takes most of the host."""

    def load(self, quick: bool) -> Experiment:
        """The experiment as it will run.

        Raises:
            ConfigError: it has mistakes.
        """
        overrides = {**self.full, **((self.quick or {}) if quick else {})}
        return experiment_file.load(experiment_file.find(self.experiment), overrides, self.settings)

    def plan(self, quick: bool) -> Plan:
        """See `Planned.plan`."""
        experiment = self.load(quick)
        return Plan(experiment.runs, experiment.table.seconds)

    def header(self, quick: bool, setting: dict[str, str]) -> dict[str, Any]:
        """See `Planned.header`."""
        return header(self.load(quick), setting, simulated=self.simulated)

    def code(self) -> str:
        """See `Planned.code`."""
        return provenance.code(simulated=self.simulated)

    @property
    def worker(self) -> str:
        """See `Planned.worker`."""
        return "testbed.harness.worker"

    def tasks(
        self, quick: bool, room: Room, runs: Sequence[tuple[str, int]] | None = None
    ) -> list[Task]:
        """Tasks for these runs, (allocator, repetition), or for all."""
        experiment = self.load(quick)
        alone = not self.simulated and (self.alone or room.jobs == 1)
        return [
            Task(self.name, name, number, self.simulated, self._run_s(experiment, name), alone)
            for name, number in (experiment.runs if runs is None else runs)
        ]

    def _run_s(self, experiment: Experiment, allocator: str) -> float:
        """The expected duration of a run, s."""
        seconds = experiment.table.seconds
        if not self.simulated:
            return seconds + self.overhead_s
        return _START_S + seconds * self.paces.get(allocator, self.pace)


@dataclass(frozen=True, slots=True)
class Setting:
    """The user's choices."""

    runs: Path
    """The directory of the series' directories."""
    room: Room
    quick: bool = False
    datapath: str = "auto"
    links: str = "auto"
    once: bool = False
    """Whether a run that the host disturbed counts, with a remark."""
    resume: bool = True
    """Whether earlier runs that still count are kept."""

    def ledger(self, series: Planned, board: Board) -> Ledger:
        """The result of a series."""
        place = "simulated" if series.simulated else ""
        chosen = {"datapath": place or self.datapath, "links": place or self.links}
        head = series.header(self.quick, chosen)
        head["jobs"] = 1 if series.alone else self.room.jobs
        directory = self.runs / series.name
        wanted = series.plan(self.quick).runs
        return Ledger(series.name, wanted, head, directory, board, resumed=self.resume)


def expected_s(all_series: Iterable[Planned], quick: bool, room: Room) -> float:
    """The expected duration of all runs, s."""
    tasks = [task for series in all_series for task in series.tasks(quick, room)]
    return time_left(tasks, [], room, lambda task: task.seconds)
