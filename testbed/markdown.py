"""Pieces of Markdown documents. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def bar(cells: Iterable[str]) -> str:
    """A line of a table; a bar inside a cell would end it, and becomes a slash."""
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def replace_section(document: str, section: str, begin: str, end: str) -> str:
    """The document with another section between its markers.

    Raises:
        ValueError: it has no place for one.
    """
    before, found_begin, rest = document.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise ValueError(f"no section between {begin!r} and {end!r}")
    return f"{before}{begin}\n\n{section.strip()}\n\n{end}{after}"
