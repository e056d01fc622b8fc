"""The tables of a comparison: for the terminal, and for docs/gossip.md. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from testbed.fabrics.case import CHURN, DEATH, DEMAND, LOSSES, SIZES, Case
from testbed.fabrics.results import Results
from testbed.markdown import bar, replace_section

BEGIN = "<!-- python -m testbed.fabrics --docs writes from here -->"
END = "<!-- to here -->"


class Table(NamedTuple):
    """One of them."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    @property
    def lines(self) -> list[str]:
        """In Markdown."""
        return [
            f"{self.title}:", "", bar(self.header), bar(["---"] * len(self.header)),
            *map(bar, self.rows),
        ]  # fmt: skip


def tables(results: Results) -> list[Table]:
    """All of them, those that have no rows left out."""
    found = [_costs(results), _losses(results), _paths(results), _deaths(results), _churn(results)]
    return [table for table in found if table.rows]


def text(results: Results) -> str:
    """For a terminal."""
    return "\n\n".join("\n".join(table.lines) for table in tables(results))


def updated(document: str, results: Results) -> str:
    """The page with these tables in its section.

    Raises:
        ValueError: it has no place for them.
    """
    return replace_section(document, text(results), BEGIN, END)


def _cases(results: Results, part: str, **changes: Any) -> Iterator[Case]:
    for size in SIZES:
        for fabric in results.fabrics():
            case = Case(part, fabric, size, **changes)
            if case in results:
                yield case


def _costs(results: Results) -> Table:
    rows = [
        [f"{case.limiters:,}", case.fabric,
         f"{results.mean(case, 'updates') or 0:.1f}",
         f"{results.mean(case, 'bytes_s') or 0:,.0f}",
         _seconds(results.seconds(case, "start", "close_after")),
         _seconds(results.seconds(case, "up", "close_after")),
         _seconds(results.seconds(case, "down", "close_after"))]
        for case in _cases(results, DEMAND)
    ]  # fmt: skip
    return Table(
        "Nothing lost: what a limiter sends, and how long until the error is below 5 % for good",
        ["limiters", "fabric", "updates an interval", "bytes/s", "all start at once",
         "the total doubles", "it halves"],
        rows,
    )  # fmt: skip


def _losses(results: Results) -> Table:
    rows = []
    for loss in LOSSES:
        rows += [_errors(results, case) for case in _cases(results, DEMAND, loss=loss)]
    rows.sort(key=lambda row: (int(row[0].replace(",", "")), row[1]))
    return Table("Errors under loss, of the true total", [*_ERRORS_OF, *_ERRORS], rows)


_ERRORS_OF = ["limiters", "fabric", "", "steady"]
_ERRORS = ["restless (95 % below)", "0.75 to 2.25 s after it doubled", "known after",
           "highest after it doubled", "lowest after it halved"]  # fmt: skip


def _errors(results: Results, case: Case) -> list[str]:
    p95 = results.mean(case, "restless", "p95")
    return [
        f"{case.limiters:,}", case.fabric, case.variant,
        _percent(results.rms(case, "steady", "rms")),
        f"{_percent(results.rms(case, 'restless', 'rms'))} ({_percent(p95)})",
        _percent(results.rms(case, "up", "doubled")),
        _seconds(results.seconds(case, "up", "close_after")),
        _signed(results.extreme(case, "up", "highest")),
        _signed(results.extreme(case, "down", "lowest")),
    ]  # fmt: skip


def _paths(results: Results) -> Table:
    variants = {
        replace(case, fabric="", limiters=0): None
        for case in results.cases
        if case.part == DEMAND
        and replace(case, loss=0.0) != Case(DEMAND, case.fabric, case.limiters)
    }
    rows = []
    for size in SIZES:
        for variant in variants:
            for fabric in results.fabrics():
                case = replace(variant, fabric=fabric, limiters=size)
                if case in results:
                    rows.append(_errors(results, case))
    return Table(
        "Paths: delay, reordering (jitter of more than an interval), repetition",
        [*_ERRORS_OF, *_ERRORS], rows,
    )  # fmt: skip


def _deaths(results: Results) -> Table:
    rows = []
    for loss in LOSSES:
        for case in _cases(results, DEATH, loss=loss):
            rows.append([
                f"{case.limiters:,}", case.fabric, case.variant,
                _seconds(results.seconds(case, "death", "counted_after")),
                _seconds(results.seconds(case, "death", "close_after")),
                _signed(results.extreme(case, "death", "highest")),
                _signed(results.extreme(case, "death", "lowest")),
                _seconds(results.seconds(case, "return", "counted_after")),
                _seconds(results.seconds(case, "return", "close_after")),
                _allotted(results, case, "death"),
                _allotted(results, case, "return"),
            ])  # fmt: skip
    rows.sort(key=lambda row: (int(row[0].replace(",", "")), row[1]))
    return Table(
        "One dies that half of the demand is of, and returns",
        ["limiters", "fabric", "", "counted out after", "total right after", "highest total",
         "lowest", "counted in after", "total right after", "most allotted: death", "return"],
        rows,
    )  # fmt: skip


def _churn(results: Results) -> Table:
    rows = []
    for size in SIZES:
        for case in results.cases:
            if case.part == CHURN and case.limiters == size:
                rows.append([
                    f"{size:,}", case.fabric, case.variant,
                    _percent(results.rms(case, "churn", "rms")),
                    _percent(results.mean(case, "churn", "p95")),
                    _signed(results.mean(case, "churn", "mean_lowest")),
                    _signed(results.mean(case, "churn", "mean_highest")),
                    f"{results.mean(case, 'churn', 'allotted', 'mean') or 0:.2f}",
                    f"{max(results.values(case, 'churn', 'allotted', 'highest')):.2f}",
                ])  # fmt: skip
    rows.sort(key=lambda row: (int(row[0].replace(",", "")), row[2], row[1]))
    return Table(
        "Limiters die and are back 3 s later",
        ["limiters", "fabric", "", "error", "95 % below", "lowest, mean", "highest, mean",
         "allotted, mean", "most"],
        rows,
    )  # fmt: skip


def _allotted(results: Results, case: Case, phase: str) -> str:
    return f"{max(results.values(case, phase, 'allotted', 'highest')):.2f}"


def _percent(error: float | None) -> str:
    if error is None:
        return ""
    return f"{100 * error:.0f} %" if error >= 0.1 else f"{100 * error:.1f} %"


def _signed(error: float | None) -> str:
    return "" if error is None else f"{100 * error:+.0f} %"


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return "never" if math.isinf(seconds) else f"{seconds:.2f} s"
