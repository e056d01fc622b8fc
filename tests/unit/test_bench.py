"""The pure parts of the benchmark: statistics, tables, the document; and its command line."""

from __future__ import annotations

import json
from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from testbed.bench import report, topics
from testbed.bench.__main__ import main
from testbed.bench.lanes import Lane, differences, ratios
from testbed.bench.plot import draw
from testbed.bench.registry import BENCHMARKS
from testbed.bench.summary import Outcome, Row, summarize
from testbed.errors import MeasurementError

RATIO, RATE = ("ratio", ""), ("rate", "Gbit/s")


def outcome() -> Outcome:
    return Outcome(
        [
            Row("small", "none", *RATE, [5.0]),
            Row("small", "drld", *RATIO, [0.9, 1.0, 1.1], at_least=0.97),
            Row("small", "drld", *RATE, [4.5]),
            Row("large", "drld", *RATIO, [0.5], at_least=0.97),
        ],
        "ratio",
        ["police is not available here"],
    )


def result(*outcomes: Outcome) -> dict[str, Any]:
    """A result as it is read back from a file."""
    benchmarks = {
        f"b{number}": {"title": f"title {number}", "seconds": 12.3, **asdict(found)}
        for number, found in enumerate(outcomes, 1)
    }
    host = {"model": "CPU", "processors": 2, "kernel": "6.1", "python": "3.11", "load": 0.5}
    document = {"taken": "2020-01-01", "quick": True, "host": host, "benchmarks": benchmarks}
    loaded: dict[str, Any] = json.loads(json.dumps(document))
    return loaded


@pytest.mark.parametrize(
    ("values", "five"),
    [([4.0, 1.0, 2.0, 3.0, 10.0], (3, 2, 4, 1, 10)), ([7.0], (7, 7, 7, 7, 7))],
)
def test_five_numbers_summarize_a_sample(values: list[float], five: tuple[float, ...]) -> None:
    assert astuple(summarize(values)) == five


def test_ratios_are_taken_within_a_round() -> None:
    mine, theirs = [{"bps": 2.0}, {"bps": 9.0}], [{"bps": 4.0}, {"bps": 3.0}]
    assert ratios(mine, theirs, "bps") == [0.5, 3.0]
    with pytest.raises(MeasurementError, match="a round without any bps"):
        ratios(mine, [theirs[0], {"bps": 0.0}], "bps")
    assert differences(mine, theirs, "bps") == [-2.0, 6.0]
    with pytest.raises(ValueError, match="zip"):
        ratios(mine, theirs[:1], "bps")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.01234, "0.012"), (0.5, "0.500"), (3.14159, "3.14"), (31.4159, "31.4"),
     (314.159, "314"), (31415.9, "31,416"), (-2.5, "-2.50"), (float("inf"), "inf")],
)  # fmt: skip
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert report.number(value) == text


@pytest.mark.parametrize(
    ("values", "goal", "text"),
    [
        ([0.97], {"at_least": 0.97}, "0.970 ok ≥ 0.970"),
        ([0.969], {"at_least": 0.97}, "0.969 short of ≥ 0.970"),
        ([39.9], {"below": 40.0}, "39.9 ok < 40.0"),
        ([40.0], {"below": 40.0}, "40.0 short of < 40.0"),
        ([0.9, 1.0, 1.1], {}, "1.00 [0.950, 1.05]"),
        ([0.9, 1.0, 1.1], {"at_least": 0.97}, "1.00 [0.950, 1.05] ok ≥ 0.970"),
    ],
)
def test_a_cell_says_whether_the_median_meets_the_goal(
    values: list[float], goal: dict[str, Any], text: str
) -> None:
    assert report.cell(Row("", "", *RATIO, values, **goal)) == text


def test_a_result_survives_its_file_and_is_printed() -> None:
    found = result(outcome(), outcome())
    assert report.rows_of(found["benchmarks"]["b1"]) == outcome().rows
    assert report.grid(outcome().rows) == [
        ["", "case", "rate, Gbit/s", "ratio"],
        ["small", "none", "5.00", ""],
        ["", "drld", "4.50", "1.00 [0.950, 1.05] ok ≥ 0.970"],
        ["large", "drld", "", "0.500 short of ≥ 0.970"],
    ]
    lines = report.text(found).splitlines()
    assert [line for line in lines if line.startswith("b")] == [
        "b1: title 1 (12 s)", "b2: title 2 (12 s)",
    ]  # fmt: skip
    assert lines.count("- police is not available here") == 2
    section = report.section(found)
    assert section.startswith("A quick run of 2020-01-01, commit unknown: 2 processors")
    assert "|  | drld | 4.50 | 1.00 [0.950, 1.05] ok ≥ 0.970 |" in section.splitlines()


def test_points_and_lines_are_drawn(tmp_path: Path) -> None:
    growing = [Row("kernel", f"{x}", *RATIO, [x, x + 1], x=float(x)) for x in (1, 10)]
    far = [Row("", f"{x}", *RATIO, [-1.0, x]) for x in (1, 2, 10_000)]
    found = [outcome(), Outcome([*growing, *far], "ratio", axis="limits"), Outcome(far, "ratio")]
    draw(result(*found, Outcome([], "ratio")), tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_an_earlier_result_is_shown_without_measuring(tmp_path: Path) -> None:
    earlier = tmp_path / "result.json"
    earlier.write_text(json.dumps(result(outcome())), encoding="utf-8")
    done = CliRunner().invoke(
        main, ["--from", str(earlier), "--plot", str(tmp_path / "figure.png")]
    )
    assert done.exit_code == 0, done.output
    assert done.output.startswith("b1: title 1 (12 s)\n")
    assert (tmp_path / "figure.png").exists()


@pytest.mark.parametrize("arguments", [["nonsense"], ["--slow"], ["--json"]])
def test_bad_arguments_are_refused_by_name(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert arguments[0] in done.output


def test_help_names_every_benchmark() -> None:
    output = CliRunner().invoke(main, ["--help"]).output
    assert all(name in output for name in BENCHMARKS)


def test_lanes_share_no_address_and_no_name() -> None:
    lanes = [Lane(number, f"lane{number}") for number in range(1, 40)]
    ends = [end for lane in lanes for end in (lane.source, lane.entry, lane.exit, lane.sink)]
    for attribute in ("device", "address", "mac"):
        assert len({getattr(end, attribute) for end in ends}) == len(ends), attribute
    assert len({lane.nowhere for lane in lanes}) == len(lanes)


def test_messages_under_many_limits_all_pass(tmp_path: Path) -> None:
    """A round checks this itself; the next one goes on where it ended."""
    field = topics._field(tmp_path, 100)
    assert field.round() > 0
    assert field.round() > 0
    assert field.datapath.read(7, field.now_ns).arrived_items > 0
    assert {*field.entries} == {f"city/{it}/traffic".encode() for it in range(1, 101)}
    assert field.look_up() > 0
    assert all(looked_up for (looked_up,) in field.entries.values())
