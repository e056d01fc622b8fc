"""The lists that name every allocator (CONTRIBUTING.md, "How to add an allocator")."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import pytest

from drld.allocators import ALLOCATORS
from testbed.plot import TITLES
from testbed.plot_response import LINES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "allocators.md"
ROWS = re.findall(r"^\| `([\w-]+)`", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize(
    ("place", "names"),
    [
        ("the table of docs/allocators.md", ROWS),
        ("TITLES in testbed/plot.py", TITLES),
        ("LINES in testbed/plot_response.py", LINES),
    ],
)
def test_a_list_names_every_allocator(place: str, names: Collection[str]) -> None:
    missing = [name for name in ALLOCATORS if name not in names]
    assert not missing, f"{place} lacks {', '.join(missing)}"


def test_the_page_names_no_other_allocator() -> None:
    assert [name for name in ROWS if name not in ALLOCATORS] == []
