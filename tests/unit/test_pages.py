"""The pages are short and their lines fit; the glossary's terms are in order and explained."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md"))]

MOST_WORDS = 35_000
"""The most words of all pages but those of results/: an engineer can read them in two days."""
PLANES = {
    "requests": (
        {"replicated-buckets.md", *(page.name for page in DOCS.glob("requests*.md"))},
        6_000,
    ),
    "messages": ({page.name for page in DOCS.glob("messages*.md")}, 6_000),
}
"""The pages of a plane, which its users read, and the most words that they may have."""
REFERENCE = "configuration.md"
SECTIONS = {
    "messages": (
        "## `[[broker]]`: a message broker behind this daemon",
        "### Limits on messages",
        "### `match`: which messages fall under a limit",
    )
}
"""The sections of the configuration reference that count with the pages of a plane."""
LONGEST_LINE = 120

TERMS = re.findall(r"^- \*\*(.+?)\*\*: (.+(?:\n  .+)*)", (DOCS / "glossary.md").read_text(), re.M)


def words(text: str) -> list[str]:
    """The words of a text: they have a letter or a digit, unlike the bars of tables."""
    return [word for word in text.split() if re.search(r"\w", word)]


def prose(page: Path) -> str:
    """A page without blocks of code and without tables."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    return re.sub(r"^(?:\||    ).*\n", "", text, flags=re.M)


def test_the_pages_have_no_more_words_than_can_be_read() -> None:
    counts = {page.name: len(words(page.read_text())) for page in PAGES}
    reference = re.split(r"^(?=##)", (DOCS / REFERENCE).read_text(), flags=re.M)
    sections = {text.partition("\n")[0]: len(words(text)) for text in reference}
    for plane, (pages, most) in PLANES.items():
        of_plane = {name: counts.pop(name) for name in pages}
        for heading in SECTIONS.get(plane, ()):
            of_plane[heading] = sections[heading]
            counts[REFERENCE] -= sections[heading]
        assert sum(of_plane.values()) <= most, of_plane
    assert sum(counts.values()) <= MOST_WORDS, counts


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_of_prose_have_120_characters_at_most(page: Path) -> None:
    lines = prose(page).splitlines()
    # A lone link cannot be broken.
    alone = re.compile(r"\s*(?:- )?\S+")
    assert [line for line in lines if len(line) > LONGEST_LINE and not alone.fullmatch(line)] == []


def test_terms_are_in_order_and_explained_by_a_page() -> None:
    names = [name.lower() for name, _ in TERMS]
    assert names == sorted(set(names))
    for name, text in TERMS:
        assert ".md" in text, name
        assert len(re.findall(r"[.:](?=\s|$)", text)) <= 4, name
