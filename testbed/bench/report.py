"""A result of the benchmark as text and as the section of a page. Pure.

A result is a JSON document: `testbed.provenance.head`, and `benchmarks`: by name a `title`,
`seconds`, and the fields of a `summary.Outcome`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from testbed.bench.summary import Row
from testbed.harness.markdown import aligned, item, prose, table
from testbed.harness.page import Page, image
from testbed.provenance import conditions

PAGE = Page("performance", "Benchmarks", "scripts/bench --docs", "../docs/performance.md", ["all"])
FIGURE = "performance.png"
_OF_REQUESTS = ["requests", "requests-memory", "requests-ticks", "rls"]
REQUESTS = Page(
    "requests", "Decisions on requests", f"scripts/bench {' '.join(_OF_REQUESTS)} --docs",
    "../docs/replicated-buckets.md", _OF_REQUESTS,
)  # fmt: skip
"""A section for each benchmark, so that each may be measured alone."""
HOP = Page(
    "hop", "A hop through drld to a broker", "scripts/bench hop topics --docs",
    "../docs/performance.md", ["hop", "topics"],
)  # fmt: skip
PAGES = (PAGE, REQUESTS, HOP)


def rows_of(benchmark: Mapping[str, Any]) -> list[Row]:
    """The rows of a benchmark's part of a result."""
    return [Row(**row) for row in benchmark["rows"]]


def number(value: float) -> str:
    """Three significant digits, and all digits before the point."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    digits = max(2 - math.floor(math.log10(abs(value))), 0)
    return f"{value:,.{min(digits, 3)}f}"


def cell(row: Row) -> str:
    """Median, quartiles, and whether the goal is met."""
    summary = row.summary
    parts = [number(summary.median)]
    if len(row.values) > 1:
        parts.append(f"[{number(summary.lower)}, {number(summary.upper)}]")
    if row.at_least is not None:
        met = summary.median >= row.at_least
        parts.append(f"{'ok' if met else 'short of'} ≥ {number(row.at_least)}")
    if row.below is not None:
        met = summary.median < row.below
        parts.append(f"{'ok' if met else 'short of'} < {number(row.below)}")
    return " ".join(parts)


def grid(rows: Sequence[Row]) -> list[list[str]]:
    """A line for each group and case, a column for each metric; the first line is the header."""
    metrics = {row.metric: f"{row.metric}, {row.unit}" if row.unit else row.metric for row in rows}
    found = {(row.group, row.case, row.metric): cell(row) for row in rows}
    lines = [["", "case", *metrics.values()]]
    before = None
    for group, case in dict.fromkeys((row.group, row.case) for row in rows):
        cells = [found.get((group, case, metric), "") for metric in metrics]
        lines.append(["" if group == before else group, case, *cells])
        before = group
    return lines


def text(result: Mapping[str, Any]) -> str:
    """The tables of a result, for a terminal."""
    parts = []
    for name, benchmark in result["benchmarks"].items():
        parts.append(f"{name}: {benchmark['title']} ({benchmark['seconds']:.0f} s)")
        parts.append(aligned(grid(rows_of(benchmark))))
        parts += [*(f"- {note}" for note in benchmark["notes"]), ""]
    return "\n".join(parts)


def sections(page: Page, result: Mapping[str, Any]) -> dict[str, str]:
    """The sections of a page, by name, from a result that has its benchmarks alone."""
    if page is PAGE:
        return {"all": section(result, image("all benchmarks", FIGURE))}
    return {
        name: section({**result, "benchmarks": {name: benchmark}})
        for name, benchmark in result["benchmarks"].items()
    }


def section(result: Mapping[str, Any], figure: str | None = None) -> str:
    """All tables, for the page."""
    parts = [
        prose(
            f"{conditions(result)}, load before it began {result['host']['load']}. Medians with "
            "their quartiles; `ok` and `short of` say how they compare to the target."
        ),
        "",
        *([figure, ""] if figure else []),
    ]
    for name, benchmark in result["benchmarks"].items():
        header, *lines = grid(rows_of(benchmark))
        parts += [f"## {name}: {benchmark['title']}", "", *table(header, lines), ""]
        parts += [*map(item, benchmark["notes"]), ""] if benchmark["notes"] else []
    return "\n".join(parts)
