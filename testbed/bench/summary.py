"""The findings of a benchmark: samples of figures, medians with their spread, goals. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass


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


def summarize(values: Sequence[float]) -> Summary:
    """Median, quartiles and extremes.

    Raises:
        statistics.StatisticsError: there are no values.
    """
    middle = statistics.median(values)
    lower = upper = middle
    if len(values) > 1:
        lower, _, upper = statistics.quantiles(values, n=4, method="inclusive")
    return Summary(middle, lower, upper, min(values), max(values))


@dataclass(frozen=True, slots=True)
class Row:
    """One measured figure of a benchmark, and its goal."""

    group: str
    """A common property, such as a size of packets or a fabric; a line of a plot if `x` is set."""
    case: str
    """The measured case, such as a datapath."""
    metric: str
    unit: str
    """Empty for a ratio."""
    values: Sequence[float]
    _: KW_ONLY
    at_least: float | None = None
    """The goal: the median is at least this."""
    below: float | None = None
    """The goal: the median is below this."""
    x: float | None = None
    """The case as a number, if the cases of the group are numbers."""

    @property
    def summary(self) -> Summary:
        """The sample in five numbers."""
        return summarize(self.values)


@dataclass(frozen=True, slots=True)
class Outcome:
    """All findings of a benchmark."""

    rows: Sequence[Row]
    headline: str
    """The metric that is drawn."""
    notes: Sequence[str] = ()
    """Remarks, such as missing measurements with their reasons."""
    axis: str = ""
    """The meaning of the rows' `x`, if they have one."""
