"""The pages for newcomers: links lead somewhere, lines fit, terms are in order."""

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


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_pages_and_headings(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]*)(?:#([^)]+))?\)", prose(page))
    assert links
    for path, anchor in links:
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_of_prose_have_120_characters_at_most(page: Path) -> None:
    long = [line for line in prose(page).splitlines() if len(line) > 120]
    assert long == []


def test_the_readme_lists_every_page() -> None:
    linked = set(re.findall(r"\]\((?:docs/)?([\w-]+\.md)", README.read_text()))
    assert {page.name for page in DOCS.glob("*.md")} | {"CONTRIBUTING.md"} == linked


def test_terms_are_in_order_and_explained_by_a_page() -> None:
    names = [name.lower() for name, _ in TERMS]
    assert names == sorted(set(names))
    for name, text in TERMS:
        assert ".md" in text or "see there" in text, name
        assert len(re.findall(r"[.:](?=\s|$)", text)) <= 4, name
