"""The figures' section of docs/reproduction.md: a row for each figure, and what is behind it. Pure.

What the section has of figures that were not taken this time stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from testbed.markdown import bar, replace_section
from testbed.reproduce.report import Summary, conditions, difference, score

BEGIN = "<!-- scripts/reproduce --docs writes from here -->"
END = "<!-- to here -->"

_HEADER = ["", "the paper", "ours", "checks", "difference"]
_MARK = re.compile(r"^<!-- (\w+) -->$", re.MULTILINE)
"""Where the details of a figure begin."""


def updated(document: str, summaries: Sequence[Summary], titles: Mapping[str, str]) -> str:
    """The document with these figures in its section; `titles` are those of all, in their order.

    Raises:
        ValueError: it has no place for them.
    """
    rows, details = _parsed(document.partition(BEGIN)[2].partition(END)[0], titles)
    for summary in summaries:
        rows[summary["name"]] = _row(summary)
        details[summary["name"]] = _details(summary)
    known = [name for name in titles if name in rows]
    table = [bar(_HEADER), bar(["---"] * len(_HEADER)), *(rows[name] for name in known)]
    blocks = [f"<!-- {name} -->\n\n{details[name]}" for name in known if name in details]
    return replace_section(document, "\n\n".join(["\n".join(table), *blocks]), BEGIN, END)


def _parsed(section: str, titles: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Rows and details of a section by name; those of figures that are no more are left out."""
    table, *blocks = _MARK.split(section)
    names = {bar([title]): name for name, title in titles.items()}
    rows = {
        names[start]: line
        for line in table.splitlines()
        if (start := line[: line.find(" | ") + 2]) in names
    }
    details = {
        name: text.strip()
        for name, text in zip(blocks[::2], blocks[1::2], strict=True)
        if name in titles
    }
    return rows, details


def _row(summary: Summary) -> str:
    return bar([summary["title"], summary["paper"], summary["ours"], score(summary),
                difference(summary)])  # fmt: skip


def _details(summary: Summary) -> str:
    """How it was taken, and its tables."""
    lines = [f"**{summary['title']}**", "", *(f"- {line}" for line in conditions([summary]))]
    for table in summary["tables"]:
        lines += ["", f"{table['title']}:", ""]
        lines += [bar(table["header"]), bar(["---"] * len(table["header"]))]
        lines += [bar(row) for row in table["rows"]]
    return "\n".join(lines)
