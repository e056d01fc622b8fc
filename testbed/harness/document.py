"""Figures as pages: of results/ by `scripts/reproduce --docs`, and of OUT with all checks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.harness.figure import Figure
from testbed.harness.finding import Table, Verdict
from testbed.harness.markdown import item, prose, table
from testbed.harness.page import RESULTS, Page, image
from testbed.harness.report import Summary, conditions, score
from testbed.harness.summary import missing_count, unmet

_TITLES = {
    "reproduction": "The paper, figure by figure",
    "scale": "Fleets of up to ten thousand limiters",
    "any-traffic": "Any traffic, as one fair bucket",
    "thesis": "Replicated token buckets, figure by figure",
    "srtm": "Rate-limited topics, figure by figure",
}
_EXPLAINED = {
    "any-traffic": "allocators.md",
    "thesis": "replicated-buckets.md",
    "srtm": "messages.md",
}
_HEADING = re.compile(r"\A## (.+)$", re.MULTILINE)
_SCORE = re.compile(r"^\*\*Checks:\*\* (.+)$", re.MULTILINE)


def pages(figures: Mapping[str, Figure]) -> dict[str, Page]:
    """Each page by its name."""
    return {
        name: Page(
            name, title, "scripts/reproduce --docs",
            f"../docs/{_EXPLAINED.get(name, f'{name}.md')}",
            [figure.name for figure in figures.values() if figure.page == name], _overview,
        )
        for name, title in _TITLES.items()
    }  # fmt: skip


def _overview(sections: Mapping[str, str]) -> str:
    """The table of all figures' checks."""
    rows = []
    for section in sections.values():
        heading, held = _HEADING.search(section), _SCORE.search(section)
        assert heading is not None
        assert held is not None
        rows.append([heading[1], held[1]])
    return "\n".join(table(["", "checks"], rows))


def write(
    figures: Mapping[str, Figure], known: Sequence[Summary], out: Path, into: Path = RESULTS
) -> list[Path]:
    """Write the sections of these summaries, whose plots are in `out`; return the pages.

    The pages of results/ leave out the checks that hold.
    """
    files = []
    for page in pages(figures).values():
        own = [one for one in known if one["name"] in page.sections]
        if own:
            sections = {one["name"]: section(one, every=into != RESULTS) for one in own}
            plots = [out / one["name"] / plot for one in own for plot in one["plots"]]
            files.append(page.write(sections, plots, into))
    return files


def section(summary: Summary, *, every: bool = False) -> str:
    """The paper's statement, the findings, the conditions of the runs, tables and plots.

    `every` adds a table of all checks.
    """
    failed = [
        f"Does not hold: {check['statement']}: {check['measured']}, not {check['bounds']}"
        for check in unmet(summary, Verdict.FAILED)
    ]
    absent = missing_count(summary)
    lines = [
        f"## {summary['title']}",
        "",
        prose(f"**{summary.get('source', 'The paper')}:** {summary['paper']}."),
        "",
        prose(f"**Here:** {summary['ours']}."),
        "",
        *([prose(f"**Difference:** {summary['difference']}"), ""] if summary["difference"] else []),
        f"**Checks:** {score(summary)}",
        "",
        *map(item, [*failed, *([f"{absent} runs are missing"] if absent else [])]),
        *map(item, conditions([summary])),
    ]
    keys = ("statement", "measured", "bounds", "verdict")
    checks = [[check[key] for key in keys] for check in summary["checks"]] if every else []
    for one in (
        *([Table("All checks", ["", "measured", "to reach", ""], checks)] if checks else []),
        *(Table(**each) for each in summary["tables"]),
    ):
        lines += ["", *one.lines]
    for plot in summary["plots"]:
        lines += ["", image(summary["title"], plot)]
    return "\n".join(lines)
