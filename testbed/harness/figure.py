"""What a figure of the paper is made of: series of runs, checks, a plot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed import experiment as experiments
from testbed.experiment import Experiment
from testbed.harness.finding import Finding
from testbed.harness.results import Results

_START_S = 1.0
"""What a simulated run takes beside its time: a process that starts."""


@dataclass(frozen=True, slots=True)
class Series:
    """An experiment, run for each allocator as often as it says; figures may share one."""

    name: str
    """Of its directory; figures that name the same series use the same runs."""
    experiment: str
    """One of testbed/experiments."""
    full: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the experiment's top level that are replaced."""
    quick: Mapping[str, Any] | None = field(default_factory=dict)
    """Those that are replaced, after those of `full`, for a quick look; None: it is left out."""
    settings: tuple[str, ...] = ()
    """Keys of its tables that are replaced, such as `gossip.interval=500ms`."""
    simulated: bool = False
    """It runs in the simulator, and not on the testbed."""
    pace: float = 1.0
    """In the simulator: seconds that it takes for a simulated one."""
    paces: Mapping[str, float] = field(default_factory=dict)
    """The same of allocators that take another time."""
    overhead_s: float = 5.0
    """On the testbed: what a run takes beside its seconds: building, starting, collecting."""
    alone: bool = False
    """On the testbed: nothing else may run beside it, for it takes most of the host."""

    def load(self, quick: bool) -> Experiment:
        """The experiment as it will run.

        Raises:
            ConfigError: it cannot be run.
        """
        overrides = {**self.full, **((self.quick or {}) if quick else {})}
        return experiments.load(experiments.find(self.experiment), overrides, self.settings)

    def run_seconds(self, seconds: float, allocator: str) -> float:
        """How long a run takes, about, of which so many seconds are its own."""
        if not self.simulated:
            return seconds + self.overhead_s
        return _START_S + seconds * self.paces.get(allocator, self.pace)

    def seconds(self, quick: bool) -> float:
        """How long all its runs take, about, one after the other."""
        table = self.load(quick).table
        return table.repeat * sum(
            self.run_seconds(table.seconds, name) for name in table.allocators
        )


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure or a table of the paper."""

    name: str
    """On the command line, and of its directory."""
    title: str
    paper: str
    """What the paper shows or says, in a sentence or two."""
    all_series: Sequence[Series]
    evaluate: Callable[[Results], Finding]
    """The checks; runs may be missing."""
    draw: Callable[[Results, Path], list[Path]]
    """Draw into a directory and return the files, the one for the report's top first."""
    page: str = "reproduction"
    """The page of results/ that shows it."""

    def series(self, quick: bool) -> list[Series]:
        """Those that are run."""
        return [one for one in self.all_series if not quick or one.quick is not None]

    def seconds(self, quick: bool) -> float:
        """How long all of them take, about."""
        return sum(series.seconds(quick) for series in self.series(quick))
