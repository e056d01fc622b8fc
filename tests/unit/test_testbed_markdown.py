"""Tables and generated sections of documents."""

from __future__ import annotations

import pytest

from testbed.markdown import bar, replace_section

BEGIN, END = "<!-- from here -->", "<!-- to here -->"


def test_a_bar_in_a_cell_ends_it_not() -> None:
    assert bar(["a", "b|c", ""]) == "| a | b/c |  |"


def test_a_document_keeps_what_is_not_generated() -> None:
    before = f"# Title\n{BEGIN}\nold\n{END}\nafter\n"
    after = replace_section(before, "\nnew\n", BEGIN, END)
    assert after == f"# Title\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    assert replace_section(after, "x", BEGIN, END) == replace_section(before, "x", BEGIN, END)


@pytest.mark.parametrize("document", ["", "nothing", BEGIN, f"{END} {BEGIN}"])
def test_a_document_without_a_place_for_it(document: str) -> None:
    with pytest.raises(ValueError, match="no section between '<!-- from here -->' and"):
        replace_section(document, "section", BEGIN, END)
