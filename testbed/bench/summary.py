"""What a benchmark found: medians with their spread, and what was to be reached. Pure."""

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
    """What was to be reached by a median."""

    bound: float
    at_least: bool = True
    """Otherwise the bound is not to be reached."""

    def met_by(self, value: float) -> bool:
        """Whether a value is good enough."""
        return value >= self.bound if self.at_least else value < self.bound


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of a benchmark."""

    group: str
    """What is alike: a size of packets, a fabric. A line of a plot, if there is an `x`."""
    case: str
    """What was measured, such as a datapath."""
    metric: str
    unit: str
    """Empty for a ratio."""
    summary: Summary
    target: Target | None = None
    x: float | None = None
    """What the case is in numbers, where it is one of a row of growing ones."""


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
    """All that a benchmark found."""

    rows: Sequence[Row]
    headline: str
    """The metric that is drawn."""
    notes: Sequence[str] = field(default=())
    """What could not be measured and why, and what else one should know."""
    axis: str = ""
    """What the rows' `x` is, where they have one."""
