"""Table 1 and figure 9: their checks from both sides, on results that were made up."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from testbed.harness.figure import Figure
from testbed.harness.finding import Verdict
from testbed.harness.results import Results
from testbed.reproduce import fig9, table1
from tests.reproduce_factories import Rate, a_result, a_run, constant, draws, failed

WEB = {"ctb": 1.80, "grd": 1.97, "fps": 2.09, "fps-paper": 2.09, "fair": 2.09}
BULK = {"ctb": 6.90, "grd": 7.25, "fps": 6.98, "fps-paper": 6.98, "fair": 6.98}
REST = constant(2.5)
JAIN = {"ctb": 0.971, "grd": 0.997, "fps": 0.962, "fps-paper": 0.962, "fair": 0.99}
RATES = {
    "ctb": (28.0, 276.0, 472.0, 695.0),
    "grd": (26.0, 343.0, 612.0, 752.0),
    "fps": (26.0, 336.0, 571.0, 765.0),
    "fps-paper": (26.0, 336.0, 571.0, 765.0),
    "fair": (26.0, 336.0, 571.0, 765.0),
}
"""Kbit/s of the four sizes of objects, as the paper has them."""


def web(mbit: float, sizes: tuple[int, ...], rates: tuple[float | None, ...]) -> dict[str, Any]:
    classes = [
        {"from": least, "finished": 2 if rate else 0, "unfinished": 1,
         "rate_bps": rate and rate * 1000}
        for least, rate in zip((0, 5_000, 50_000, 500_000), rates, strict=True)
    ]  # fmt: skip
    return {
        "goodput_bps": mbit * 1e6,
        "classes": classes,
        "sites": [],
        "requests": [[0, 0.1, size, size, 0.2] for size in sizes],
    }


def table_1(
    *,
    webs: Mapping[str, float] | None = None,
    bulk: Mapping[str, float] | None = None,
    jain: Mapping[str, float] | None = None,
    rate: Rate = REST,
    other: tuple[int, ...] = (2000, 7000),
    rates: Mapping[str, tuple[float | None, ...]] | None = None,
) -> Results:
    """Two runs of each allocator as the paper has them, but for what is said.

    `other` are the sizes that `fair` was asked for.
    """
    goodput, bulks, index = (
        {**WEB, **(webs or {})},
        {**BULK, **(bulk or {})},
        {**JAIN, **(jain or {})},
    )
    runs = [
        a_run(
            name, number,
            limiters={"l1": constant(7.5), "l2": rate},
            jain=index[name],
            bulk_goodput_bps=bulks[name] * 1e6,
            web=web(goodput[name], other if name == "fair" else (2000, 7000),
                    {**RATES, **(rates or {})}[name]),
        )
        for number in (1, 2)
        for name in WEB
    ]  # fmt: skip
    return Results({"table1": a_result(*runs)})


def test_the_paper_s_table_1_holds(tmp_path: Path) -> None:
    assert failed(table1.FIGURE, table_1()) == []
    draws(table1.FIGURE, table_1(), tmp_path)
    (table,) = table1.FIGURE.evaluate(table_1()).tables
    by_label = {row[0]: row[1:] for row in table.rows}
    assert by_label["Goodput, web"][:3] == ["1796.06", "1974.35", "2090.25"]
    assert by_label["Goodput, web"][3:] == ["1800.00", "1970.00", "2090.00", "2090.00", "2090.00"]
    assert by_label["Web rate, [0, 5000)"][3] == "28.00"
    none_finished = {"ctb": (28.0, 276.0, 472.0, None)}
    (table,) = table1.FIGURE.evaluate(table_1(rates=none_finished)).tables
    assert table.rows[-2][4] == "-"
    assert by_label["Fairness, bulk"][3] == "0.971"


@pytest.mark.parametrize(
    ("changes", "statement"),
    [
        ({"webs": {"fps": 1.79}}, "FPS: web goodput over CTB's"),
        ({"bulk": {"fps": 6.7}}, "FPS: bulk goodput over CTB's"),
        ({"jain": {"fps": 0.96}}, "FPS: Jain's index of the bulk flows less CTB's"),
        ({"jain": {"grd": 0.96}}, "GRD: Jain's index of the bulk flows less CTB's"),
        ({"bulk": {"fair": 6.7}}, "fair: bulk goodput over CTB's"),
        ({"rates": {"fair": (26.0, 336.0, 571.0, 650.0)}},
         "fair: rate of objects of [500000, ∞) bytes over CTB's (paper: 1.10)"),
        ({"bulk": {"fps-paper": 6.7}}, "FPS as printed: bulk goodput over CTB's"),
        ({"rates": {"fps": (31.0, 336.0, 571.0, 765.0)}},
         "FPS: rate of objects of [0, 5000) bytes over CTB's (paper: 0.91)"),
        ({"rates": {"fps": (26.0, 336.0, 571.0, 650.0)}},
         "FPS: rate of objects of [500000, ∞) bytes over CTB's (paper: 1.10)"),
        ({"rates": {"fps-paper": (26.0, 280.0, 571.0, 765.0)}},
         "FPS as printed: rate of objects of [5000, 50000) bytes over CTB's (paper: 1.22)"),
        ({"rates": {"grd": (26.0, 343.0, 500.0, 752.0)}},
         "GRD: rate of objects of [50000, 500000) bytes over CTB's (paper: 1.30)"),
        ({"other": (2000, 7001)}, "Repetitions in which all were asked for the same objects"),
    ],
)  # fmt: skip
def test_what_falls_short_fails_table_1(changes: dict[str, Any], statement: str) -> None:
    assert failed(table1.FIGURE, table_1(**changes)) == [statement]


def test_too_low_a_rate_fails_the_aggregates_of_table_1() -> None:
    assert failed(table1.FIGURE, table_1(rate=constant(2.1))) == [
        "FPS: aggregate over the limit", "FPS as printed: aggregate over the limit",
        "fair: aggregate over the limit",
    ]  # fmt: skip


def test_rates_of_several_runs_are_one_harmonic_mean_over_their_requests() -> None:
    def run(finished: int, rate_bps: float | None) -> dict[str, Any]:
        return {"web": {"classes": [{"finished": finished, "rate_bps": rate_bps}]}}

    assert table1.class_rate([run(1, 10.0), run(3, 30.0), run(0, None)], 0) == pytest.approx(20)
    assert table1.class_rate([run(0, None)], 0) is None


DEMAND = [
    {"at": "10s", "web": ["w1"], "concurrent": 6},
    {"at": "10s", "web": ["w2"], "concurrent": 0},
    {"at": "20s", "web": ["w1", "w2"], "concurrent": 3},
]


def figure_9(
    static: Rate,
    fps: Rate,
    demand: list[dict[str, Any]] = DEMAND,
    *,
    fair: Rate | None = None,
) -> Results:
    """5 Mbit/s for two limiters, 30 s in three phases."""
    idle: Rate = lambda time_s: 0.0 if 10 <= time_s < 20 else 2.5  # noqa: E731
    runs = [
        a_run(name, 1, limiters={"l1": rate, "l2": idle}, seconds=30.0, jain=None)
        for name, rate in (
            ("static", static),
            ("fps", fps),
            ("fps-paper", following),
            ("fair", fair or following),
        )
    ]
    definition = {"seconds": 30, "warmup": "2s", "demand": demand}
    return Results({"fig9": a_result(*runs, limit_bps=5e6, definition=definition)})


def following(time_s: float) -> float:
    return 5.0 if 10 <= time_s < 20 else 2.5


def test_the_paper_s_figure_9_holds(tmp_path: Path) -> None:
    results = figure_9(constant(2.0), following)
    assert failed(fig9.FIGURE, results) == []
    draws(fig9.FIGURE, results, tmp_path)
    (table,) = fig9.FIGURE.evaluate(results).tables
    assert table.rows[0][3] == "0.400"
    assert table.rows[1][1:] == ["1.000", "1.000", "1.000", "1.000", "1.000", "1.00"]


@pytest.mark.parametrize(
    ("static", "fps", "statements"),
    [
        (constant(2.5), following, ["Static 1/N cannot use"]),
        (constant(2.0), lambda time_s: 2.5 if time_s < 10 else 5.2 if time_s < 20 else 2.6,
         []),
        (constant(2.0), lambda time_s: 2.5 if time_s < 10 else 4.5 if time_s < 20 else 2.9,
         ["FPS delivers the limit while four", "FPS delivers the limit while all ten again"]),
        (constant(2.0), constant(2.5),
         ["FPS: aggregate over the limit", "FPS delivers the limit while four"]),
        (constant(2.0), lambda time_s: following(time_s) + (0.6 if time_s % 10 < 2 else -0.1),
         ["FPS bursts above the limit only occasionally"]),
        (constant(2.0), lambda time_s: following(time_s) + (0.8 if 12 <= time_s < 13 else 0.0),
         ["FPS: highest 1 s window"]),
    ],
)  # fmt: skip
def test_what_falls_short_fails_figure_9(static: Rate, fps: Rate, statements: list[str]) -> None:
    found = failed(fig9.FIGURE, figure_9(static, fps))
    assert len(found) == len(statements)
    assert all(one.startswith(start) for one, start in zip(found, statements, strict=True))


def test_fair_is_judged_in_figure_9() -> None:
    higher: Rate = lambda time_s: following(time_s) * 1.3  # noqa: E731
    found = failed(fig9.FIGURE, figure_9(constant(2.0), following, fair=higher))
    assert found == [
        "fair: aggregate over the limit",
        "fair delivers the limit while all ten have requests",
        "fair delivers the limit while four have requests",
        "fair delivers the limit while all ten again have requests",
        "fair bursts above the limit only occasionally: 1 s windows of at most 1.10 of it",
        "fair: highest 1 s window over the limit",
    ]


@pytest.mark.parametrize("figure", [table1.FIGURE, fig9.FIGURE], ids=lambda figure: figure.name)
@pytest.mark.parametrize("results", [Results({}), figure_9(following, following, demand=[])])
def test_without_runs_nothing_holds_and_nothing_breaks(
    figure: Figure, results: Results, tmp_path: Path
) -> None:
    checks = figure.evaluate(results).checks
    assert Verdict.MISSING in {check.verdict for check in checks}
    figure.draw(results, tmp_path)
