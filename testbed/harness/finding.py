"""The findings about a figure: checks of the paper's statements, and tables. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from testbed.harness.markdown import table


class Verdict(Enum):
    """The outcome of a check."""

    PASSED = "ok"
    FAILED = "failed"
    MISSING = "not measured"


@dataclass(frozen=True, slots=True)
class Check:
    """A statement about a figure, as a number with bounds."""

    statement: str
    value: float | None
    """The measured value; None: it could not be measured."""
    unit: str = ""
    least: float | None = None
    most: float | None = None

    @property
    def verdict(self) -> Verdict:
        """Whether it holds."""
        if self.value is None or math.isnan(self.value):
            return Verdict.MISSING
        enough = self.least is None or self.value >= self.least
        fits = enough and (self.most is None or self.value <= self.most)
        return Verdict.PASSED if fits else Verdict.FAILED

    @property
    def bounds(self) -> str:
        """The bounds in words."""
        if self.least is not None and self.most is not None:
            return f"{_number(self.least)} to {_number(self.most)}"
        if self.least is not None:
            return f"at least {_number(self.least)}"
        return "" if self.most is None else f"at most {_number(self.most)}"

    @property
    def measured(self) -> str:
        """The value with its unit."""
        if self.value is None:
            return "-"
        return f"{_number(self.value)} {self.unit}".strip()

    @property
    def record(self) -> dict[str, Any]:
        """The check as data, for results."""
        return {
            **asdict(self), "measured": self.measured, "bounds": self.bounds,
            "verdict": self.verdict.value,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text. The first column is a name."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    @property
    def lines(self) -> list[str]:
        """The table in Markdown."""
        return [f"{self.title}:", "", *table(self.header, self.rows)]


@dataclass(frozen=True, slots=True)
class Finding:
    """The findings about a figure."""

    checks: Sequence[Check]
    ours: str
    """The main values in one sentence, to compare with the paper's."""
    difference: str = ""
    """The reason for a difference from the paper; empty without one."""
    tables: Sequence[Table] = field(default=())


def near(
    statement: str, value: float | None, target: float, tolerance: float, unit: str = ""
) -> Check:
    """A check that a value is within a tolerance of a target."""
    return Check(statement, value, unit, target - tolerance, target + tolerance)


def _number(value: float) -> str:
    """Three decimals below ten, fewer above."""
    if not math.isfinite(value):
        return f"{value}"
    digits = 3 if abs(value) < 10 else 1 if abs(value) < 1000 else 0
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
