"""Pages of results/: what is written, and what stays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from testbed.harness.page import PLOTS, Page, image


def overview(sections: Mapping[str, str]) -> str:
    return f"{len(sections)} sections"


PAGE = Page("rates", "Rates", "scripts/x --docs", "../docs/x.md", ["one", "two", "three"])


def test_a_page_says_what_writes_and_what_explains_it() -> None:
    assert PAGE.updated("", {"one": "text\n"}) == (
        "# Rates\n\n`scripts/x --docs` writes this page. [x.md](../docs/x.md) explains it.\n\n"
        "<!-- one -->\n\ntext\n"
    )


def test_sections_that_were_not_taken_this_time_stay_in_their_order() -> None:
    page = PAGE.updated("", {"three": "3", "two": "2"})
    page = PAGE.updated(page, {"one": "1", "two": "new"})
    assert page == PAGE.updated("", {"one": "1", "two": "new", "three": "3"})
    assert page.endswith("<!-- one -->\n\n1\n\n<!-- two -->\n\nnew\n\n<!-- three -->\n\n3\n")
    # Nothing new, nothing changed.
    assert PAGE.updated(page, {}) == page


def test_unknown_sections_are_dropped() -> None:
    page = PAGE.updated("", {"one": "1", "two": "2"})
    fewer = Page("rates", "Rates", "scripts/x --docs", "../docs/x.md", ["two"], overview)
    assert fewer.updated(page, {}).endswith("it.\n\n1 sections\n\n<!-- two -->\n\n2\n")


def test_a_page_is_written_with_its_images(tmp_path: Path) -> None:
    plot = tmp_path / "plot.png"
    plot.write_bytes(b"png")
    results = tmp_path / "results"
    file = PAGE.write({"one": image("A plot", plot.name)}, [plot], results)
    PAGE.write({"two": "2"}, directory=results)
    assert file == results / "rates.md"
    assert "![A plot](plots/plot.png)\n\n<!-- two -->" in file.read_text()
    assert (results / PLOTS / "plot.png").read_bytes() == b"png"
