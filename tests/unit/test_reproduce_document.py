"""The figures' section of the document: what is written, and what stays."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.reproduce import __main__ as command
from testbed.reproduce.document import BEGIN, END, updated
from testbed.reproduce.registry import FIGURES

TITLES = {"one": "Figure 1: rates", "two": "Two | more", "three": "Figure 10: rates"}
EMPTY = f"before\n{BEGIN}\n\n{END}\nafter\n"


def a_summary(name: str, ours: str = "1.0", **changes: Any) -> dict[str, Any]:
    check = {"statement": "as CTB", "measured": "0.5", "bounds": "at least 0.9"}
    series = {
        "name": "two", "where": "testbed", "datapaths": ["kernel"], "seconds": 60.0, "wanted": 4,
        "runs": 2, "discarded": 1, "commit": "0123456789abcdef", "kernel": "6.1", "cpus": 2,
        "jobs": 4, "started_at": "2020", "missing": [{"reason": "late"}, {"reason": "late"}],
    }  # fmt: skip
    return {
        "name": name,
        "title": TITLES[name],
        "paper": "it says so",
        "ours": ours,
        "quick": True,
        "difference": "TCP is another.",
        "checks": [{**check, "verdict": "ok"}, {**check, "verdict": "failed"}],
        "series": [series],
        "tables": [{"title": "Rates", "header": ["", "Mbit/s"], "rows": [["FPS", "10"]]}],
        **changes,
    }


def the_rows(document: str) -> list[str]:
    table = document.partition(BEGIN)[2].partition("<!-- ")[0]
    return [line for line in table.splitlines() if line.startswith("| ") and "paper |" not in line
            and "---" not in line]  # fmt: skip


def test_a_row_says_what_differs_and_details_say_how_it_was_taken() -> None:
    document = updated(EMPTY, [a_summary("one")], TITLES)
    (row,) = the_rows(document)
    assert row == (
        "| Figure 1: rates | it says so | 1.0 | 1 of 2 checks hold (a quick run: few and short) | "
        "TCP is another. Does not hold: as CTB: 0.5, not at least 0.9. 2 runs are missing. |"
    )
    assert (
        "- two (quick): 2 of 4 runs of 60 s (testbed, kernel datapath, 4 at a time), 1 attempts "
        "discarded; commit 0123456789ab, Linux 6.1, 2 processors, 2020"
    ) in document
    assert "\nRates:\n\n|  | Mbit/s |\n| --- | --- |\n| FPS | 10 |\n" in document
    assert document.startswith("before\n")
    assert document.endswith(f"{END}\nafter\n")


def test_a_check_that_was_not_measured_is_told_from_one_that_failed() -> None:
    checks = [{"verdict": verdict} for verdict in ("ok", "not measured", "not measured")]
    document = updated(EMPTY, [a_summary("one", checks=checks, quick=False)], TITLES)
    (row,) = the_rows(document)
    assert "| 1 of 3 checks hold, 2 not measured | TCP is another." in row


def test_figures_that_were_not_taken_this_time_stay() -> None:
    document = updated(EMPTY, [a_summary("three"), a_summary("two")], TITLES)
    document = updated(document, [a_summary("one"), a_summary("two", ours="2.0")], TITLES)
    assert [row.split(" | ")[0] for row in the_rows(document)] == [
        "| Figure 1: rates", "| Two / more", "| Figure 10: rates",
    ]  # fmt: skip
    assert [row.split(" | ")[2] for row in the_rows(document)] == ["1.0", "2.0", "1.0"]
    for mark in ("<!-- one -->", "<!-- two -->", "<!-- three -->"):
        assert document.count(mark) == 1
    assert document.count("- two (quick)") == 3
    # Nothing new, nothing changed.
    assert updated(document, [], TITLES) == document


def test_figures_that_are_no_more_go() -> None:
    document = updated(EMPTY, [a_summary("one"), a_summary("two")], TITLES)
    document = updated(document, [], {"two": TITLES["two"]})
    assert len(the_rows(document)) == 1
    assert "<!-- one -->" not in document


def test_a_document_without_a_place_for_it_is_refused() -> None:
    with pytest.raises(ValueError, match="no section"):
        updated("nothing", [a_summary("one")], TITLES)


def test_the_document_has_a_place_for_it() -> None:
    document = command._DOCUMENT.read_text(encoding="utf-8")
    titles = {figure.name: figure.title for figure in FIGURES.values()}
    new = {**a_summary("one", "a new figure"), "name": "fig3", "title": titles["fig3"]}
    assert "| a new figure |" in updated(document, [new], titles)
