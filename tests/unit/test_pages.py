"""The pages for newcomers: lines fit, and the glossary's terms are in order and explained."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [README, DOCS / "quickstart.md", DOCS / "troubleshooting.md", DOCS / "glossary.md"]

TERMS = re.findall(r"^- \*\*(.+?)\*\*: (.+(?:\n  .+)*)", (DOCS / "glossary.md").read_text(), re.M)


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_of_prose_have_120_characters_at_most(page: Path) -> None:
    long = [line for line in prose(page).splitlines() if len(line) > 120]
    assert long == []


def test_terms_are_in_order_and_explained_by_a_page() -> None:
    names = [name.lower() for name, _ in TERMS]
    assert names == sorted(set(names))
    for name, text in TERMS:
        assert ".md" in text or "see there" in text, name
        assert len(re.findall(r"[.:](?=\s|$)", text)) <= 4, name
