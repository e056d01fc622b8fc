"""A figure or table: series of runs, checks, and a plot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.harness.finding import Finding
from testbed.harness.results import Results
from testbed.harness.series import Planned


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure or a table of the paper, or a study of our own."""

    name: str
    """The name on the command line and of the figure's directory."""
    title: str
    paper: str
    """The paper's statement, in a sentence or two."""
    all_series: Sequence[Planned]
    evaluate: Callable[[Results], Finding]
    """Makes the checks; runs may be missing."""
    draw: Callable[[Results, Path], list[Path]]
    """Draws into a directory and returns the files, the most important first."""
    page: str = "reproduction"
    """The page of results/ that shows it."""
    source: str = "The paper"
    """The author of the statement `paper`."""

    def series(self, quick: bool) -> list[Planned]:
        """The series of a full or a quick run."""
        return [one for one in self.all_series if not quick or one.quick is not None]


def series_of(figures: Iterable[Figure], quick: bool) -> list[Planned]:
    """Each series once, in the order of the figures."""
    needed = [series for figure in figures for series in figure.series(quick)]
    return list({series.name: series for series in needed}.values())
