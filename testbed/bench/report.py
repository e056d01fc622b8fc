"""A result of the benchmark as data, as text and as the section of a page. Pure.

A result is a JSON document: `taken` (date), `quick`, `host` (what it ran on), and by name of a
benchmark its `title`, `seconds`, and what is in a `summary.Outcome`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from testbed.bench.summary import Outcome, Row, Summary, Target
from testbed.harness.markdown import aligned, item, prose, table
from testbed.harness.page import Page, image
from testbed.provenance import conditions

PAGE = Page("performance", "Benchmarks", "scripts/bench --docs", "../docs/performance.md", ["all"])
FIGURE = "performance.png"


def record(title: str, seconds: float, outcome: Outcome) -> dict[str, Any]:
    """A benchmark's part of a result."""
    return {"title": title, "seconds": round(seconds, 1), **asdict(outcome)}


def rows_of(benchmark: Mapping[str, Any]) -> list[Row]:
    """The rows of a benchmark's part of a result."""
    return [
        Row(
            **{
                **row,
                "summary": Summary(**row["summary"]),
                "target": Target(**row["target"]) if row["target"] else None,
            }
        )
        for row in benchmark["rows"]
    ]


def number(value: float) -> str:
    """Three significant digits, and all digits before the point."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    digits = max(2 - math.floor(math.log10(abs(value))), 0)
    return f"{value:,.{min(digits, 3)}f}"


def cell(row: Row) -> str:
    """Median, quartiles, and the missed goal, if any."""
    summary, target = row.summary, row.target
    text = number(summary.median)
    if summary.count > 1:
        text += f" [{number(summary.lower)}, {number(summary.upper)}]"
    if target is not None:
        sign = "≥" if target.at_least else "<"
        met = "ok" if target.met_by(summary.median) else "short of"
        text += f" {met} {sign} {number(target.bound)}"
    return text


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
    """All tables, for a terminal."""
    parts = []
    for name, benchmark in result["benchmarks"].items():
        parts.append(f"{name}: {benchmark['title']} ({benchmark['seconds']:.0f} s)")
        parts.append(aligned(grid(rows_of(benchmark))))
        parts += [*(f"- {note}" for note in benchmark["notes"]), ""]
    return "\n".join(parts)


def section(result: Mapping[str, Any]) -> str:
    """All tables, for the page."""
    parts = [
        prose(
            f"{conditions(result)}, load before it began {result['host']['load']}. Medians with "
            "their quartiles; `ok` and `short of` say how they compare to the target."
        ),
        "",
        image("all benchmarks", FIGURE),
        "",
    ]
    for name, benchmark in result["benchmarks"].items():
        header, *lines = grid(rows_of(benchmark))
        parts += [f"## {name}: {benchmark['title']}", "", *table(header, lines), ""]
        parts += map(item, benchmark["notes"])
        parts += [""] if benchmark["notes"] else []
    return "\n".join(parts)
