"""Pieces of documents: tables, and text in lines."""

from __future__ import annotations

from testbed.harness.markdown import bar, item, prose, table


def test_a_bar_does_not_end_its_cell() -> None:
    assert bar(["a", "b|c", ""]) == "| a | b/c |  |"


def test_a_table_has_a_rule_below_its_header() -> None:
    assert table(["a", "b"], [["1", "2"]]) == ["| a | b |", "| --- | --- |", "| 1 | 2 |"]


def test_lines_end_before_they_are_too_long() -> None:
    words = ["x" * 50, "y-y" * 20, "z" * 130]
    assert prose(" ".join(words)) == f"{words[0]} {words[1]}\n{words[2]}"
    assert item(" ".join(words)).splitlines() == [f"- {words[0]} {words[1]}", f"  {words[2]}"]
