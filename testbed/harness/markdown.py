"""Tables and prose, in Markdown and for terminals. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

_WIDTH = 120


def bar(cells: Iterable[str]) -> str:
    """A row of a table. A bar inside a cell would end the cell, and becomes a slash."""
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    return [bar(header), bar(["---"] * len(header)), *map(bar, rows)]


def aligned(rows: Sequence[Sequence[str]], left: int | None = None) -> str:
    """A table for a terminal: the first `left` columns, or all, are aligned to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if left is None or column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def prose(text: str, indent: str = "") -> str:
    """Text in lines of at most 120 characters; lines after the first begin with `indent`."""
    return textwrap.fill(
        text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def item(text: str) -> str:
    """An item of a list."""
    return prose(f"- {text}", "  ")
