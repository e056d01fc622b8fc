"""A benchmark's findings: medians with their spread, and goals. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Summary:
    """A sample in five numbers."""

    median: float
    lower: float
    """First quartile."""
    upper: float
    """Third quartile."""
    least: float
    most: float
    count: int


def summarize(values: Sequence[float]) -> Summary:
    """Median, quartiles and extremes.

    Raises:
        statistics.StatisticsError: there are no values.
    """
    middle = statistics.median(values)
    lower = upper = middle
    if len(values) > 1:
        lower, _, upper = statistics.quantiles(values, n=4, method="inclusive")
    return Summary(middle, lower, upper, min(values), max(values), len(values))


@dataclass(frozen=True, slots=True)
class Target:
    """A goal for a median."""

    bound: float
    at_least: bool = True
    """Whether the median must be at least the bound; if not, below it."""

    def met_by(self, value: float) -> bool:
        """Whether a value meets the goal."""
        return value >= self.bound if self.at_least else value < self.bound


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of a benchmark."""

    group: str
    """A common property, such as a size of packets or a fabric; a line of a plot if `x` is set."""
    case: str
    """The measured case, such as a datapath."""
    metric: str
    unit: str
    """Empty for a ratio."""
    summary: Summary
    target: Target | None = None
    x: float | None = None
    """The case as a number, if the cases of the group are numbers."""


def row(
    group: str,
    case: str,
    metric: tuple[str, str],
    values: Sequence[float],
    *,
    target: Target | None = None,
    x: float | None = None,
) -> Row:
    """A figure from its sample; `metric` is a name and a unit."""
    return Row(group, case, *metric, summarize(values), target, x)


@dataclass(frozen=True, slots=True)
class Outcome:
    """All findings of a benchmark."""

    rows: Sequence[Row]
    headline: str
    """The metric that is drawn."""
    notes: Sequence[str] = field(default=())
    """Remarks, such as missing measurements with their reasons."""
    axis: str = ""
    """The meaning of the rows' `x`, if they have one."""
