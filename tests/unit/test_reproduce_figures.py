"""Each figure's checks from both sides, on results that were made up, and that its plot draws."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from testbed.harness.figure import Figure
from testbed.harness.finding import Verdict
from testbed.harness.results import Results, windows
from testbed.reproduce import fig3, fig4, fig5, fig7
from tests.reproduce_factories import Rate, a_result, a_run, constant, draws, failed


def swinging(mbit: float, by: float, period_s: float = 0.5) -> Rate:
    return lambda time_s: mbit + by * math.sin(2 * math.pi * time_s / period_s)


def verdicts(figure: Figure, results: Results) -> dict[str, Verdict]:
    return {check.statement: check.verdict for check in figure.evaluate(results).checks}


SPLIT = {"l1": swinging(3, 0.3), "l2": swinging(7, 0.7)}
BURSTY = {"l1": swinging(3, 1), "l2": swinging(7, 3)}
UNFAIR = {"l1": constant(0.5), "l2": swinging(9.5, 3)}
JAIN = {
    "ctb": 0.97, "gtb": 0.7, "grd": 0.995, "fps": 0.975, "fps-paper": 0.975, "fair": 0.997,
    "crd": 0.996,
}  # fmt: skip


def baseline(
    limiters: Mapping[str, Mapping[str, Rate]] | None = None,
    jain: Mapping[str, float] | None = None,
    hasty: Mapping[str, Rate] = SPLIT,
) -> Results:
    """The baseline's runs as the paper has them, two of each, but for what is said.

    `hasty` is GRD's rate under the other reading of the paper's EWMA parameter.
    """
    rates = {"gtb": UNFAIR, "grd": BURSTY, **(limiters or {})}
    index = {**JAIN, **(jain or {})}
    runs = [
        a_run(name, number, limiters=rates.get(name, SPLIT), jain=index[name] + number / 10_000)
        for number in (2, 1)
        for name in index
    ]
    other = a_result(a_run("grd", limiters=hasty))
    return Results({"baseline": a_result(*runs), "baseline-hasty": other})


@pytest.mark.parametrize("figure", [fig3.FIGURE, fig4.FIGURE, fig5.FIGURE], ids=lambda f: f.name)
def test_what_the_paper_shows_of_the_baseline_holds(figure: Figure, tmp_path: Path) -> None:
    assert failed(figure, baseline()) == []
    draws(figure, baseline(), tmp_path)


@pytest.mark.parametrize(
    ("allocator", "limiters", "statement"),
    [
        ("fps", {"l1": constant(3.1), "l2": constant(7.3)}, "FPS: aggregate"),
        ("fps-paper", {"l1": constant(3.6), "l2": constant(6.4)}, "FPS as printed: share"),
        ("fair", {"l1": constant(3.6), "l2": constant(6.4)}, "fair: share"),
        ("fair", {"l1": constant(3.06), "l2": constant(7.14)}, "fair, more strictly"),
        ("fair", {"l1": constant(2.92), "l2": constant(6.83)}, "fair, more strictly"),
        ("ctb", {"l1": constant(2.8), "l2": constant(6.6)}, "CTB: aggregate"),
        ("grd", {"l1": constant(3.6), "l2": constant(6.4)}, "GRD: share"),
        ("gtb", {"l1": constant(2), "l2": constant(8)}, "GTB: share"),
    ],
)
def test_a_wrong_rate_or_split_fails_figure_3(
    allocator: str, limiters: dict[str, Rate], statement: str
) -> None:
    (found,) = failed(fig3.FIGURE, baseline({allocator: limiters}))
    assert found.startswith(statement)


@pytest.mark.parametrize(
    ("allocator", "limiters", "statements"),
    [
        ("grd", SPLIT, ["GRD is bursty over 0.1 s"]),
        ("fps", BURSTY, ["FPS matches CTB over 0.1 s"]),
        ("fps-paper", BURSTY, ["FPS as printed matches CTB over 0.1 s"]),
        ("fps", {"l1": swinging(10, 4, 4.0)},
         ["FPS delivers the limit", "FPS matches CTB over 1 s", "FPS matches CTB over 0.1 s"]),
        # One window of 18 is too high.
        ("fair", {"l1": lambda time_s: 11.2 if 9 <= time_s < 10 else 10},
         ["fair, more strictly"]),
    ],
)  # fmt: skip
def test_a_wrong_spread_fails_figure_4(
    allocator: str, limiters: dict[str, Rate], statements: list[str]
) -> None:
    found = failed(fig4.FIGURE, baseline({allocator: limiters}))
    assert len(found) == len(statements)
    assert all(one.startswith(start) for one, start in zip(found, statements, strict=True))


@pytest.mark.parametrize(
    ("rates", "statement"),
    [
        ({"l1": swinging(10, 4, 4.0)}, "GRD with an EWMA of 0.1 an interval: 1 s windows"),
        ({"l1": constant(9.3)}, "GRD with an EWMA of 0.1 an interval: aggregate"),
    ],
)
def test_figure_4_judges_grd_under_the_other_reading_too(
    rates: dict[str, Rate], statement: str
) -> None:
    (found,) = failed(fig4.FIGURE, baseline(hasty=rates))
    assert found.startswith(statement)


@pytest.mark.parametrize(
    ("jain", "statements"),
    [
        ({"gtb": 0.9}, ["GTB: Jain's index about 0.7"]),
        ({"fps": 0.95}, ["FPS at or above CTB: difference", "FPS at or above CTB: least"]),
        (
            {"fps-paper": 0.95},
            ["FPS as printed at or above CTB: difference", "FPS as printed at or above CTB: least"],
        ),
        ({"crd": 0.95}, ["Central random drop"]),
        ({"fair": 0.99}, ["fair, more strictly"]),
        ({"fair": 0.95}, ["fair at or above", "fair at or above", "fair, more strictly"]),
        ({"grd": 0.98}, ["GRD: Jain's index", "Central random drop"]),
    ],
)
def test_a_wrong_index_fails_figure_5(jain: dict[str, float], statements: list[str]) -> None:
    found = failed(fig5.FIGURE, baseline(jain=jain))
    assert len(found) == len(statements)
    assert all(one.startswith(start) for one, start in zip(found, statements, strict=True))


def test_quantiles_of_samples_that_differ_in_size() -> None:
    assert fig5.quantiles([1, 2, 3], [10, 30]) == [(1, 10), (3, 30)]
    assert fig5.quantiles([1.0, 2.0, 4.0, 8.0], [1, 2, 3]) == [(1, 1), (3, 2), (8, 3)]
    assert fig5.quantiles([], [1.0]) == []


def test_windows_are_whole_and_begin_where_they_should() -> None:
    assert windows([1, 1, 2, 4, 9], 0.5, 1.0, 0.5, 2.5) == [1.5, 6.5]
    assert windows([1, 1, 2, 4, 9], 0.5, 1.0, 0.0, 2.5) == [1, 3]


DEFINITION = {
    "events": [{"at": "15s", "flows": "seven"}],
    "flows": [{"limiter": "l1"}, {"limiter": "l2"}, {"limiter": "l2", "start": "31s"}],
}


def steps(*values: tuple[float, float]) -> Rate:
    """(from when, Mbit/s)."""
    return lambda time_s: next(mbit for since, mbit in reversed(values) if time_s >= since)


def bottleneck(**changes: Rate) -> Results:
    rates: dict[str, Rate] = {
        "l1": steps((0, 3), (16, 8), (32, 6)),
        "l2": steps((0, 7), (16, 2), (32, 4)),
        "late": constant(2),
        **changes,
    }
    flows = [{"limiter": "l2", "rate": rates.pop("late"), "start_s": 31.002}]
    runs = [
        a_run(name, limiters=rates, flows=flows, seconds=60.0, warmup_s=2.0)
        for name in ("fps", "fps-paper", "fair", "ctb")
    ]
    return Results({"bottleneck": a_result(*runs, definition=DEFINITION)})


def test_figure_7_as_the_paper_has_it(tmp_path: Path) -> None:
    assert failed(fig7.FIGURE, bottleneck()) == []
    draws(fig7.FIGURE, bottleneck(), tmp_path)
    said = fig7.FIGURE.evaluate(bottleneck()).ours
    # The 3 s means reach within 0.5 Mbit/s of 8 : 2 as soon as 0.3 s of the old split are in them.
    assert "FPS: 8 : 2 after 0.8 s, 6 : 4 after 0.4 s" in said


@pytest.mark.parametrize(
    ("changes", "statements"),
    [
        ({"l1": steps((0, 3), (21, 8), (32, 6)), "l2": steps((0, 7), (21, 2), (32, 4))}, ["after"]),
        ({"l1": steps((0, 3), (16, 8), (18.6, 7.4), (32, 6))}, ["distance"]),
        ({"l2": steps((0, 7), (16, 2))}, ["aggregate", "after", "distance"]),
        ({"late": constant(1.4)}, ["goodput of the flow that joined"]),
    ],
)
def test_a_late_or_a_wrong_split_fails_figure_7(
    changes: dict[str, Rate], statements: list[str]
) -> None:
    found = [one for one in failed(fig7.FIGURE, bottleneck(**changes)) if one.startswith("FPS:")]
    assert len(found) == len(statements)
    assert all(part in one for one, part in zip(found, statements, strict=True))


def test_a_split_that_never_comes_is_never_settled() -> None:
    assert fig7.settled_after([(15.0, 2.0), (15.2, 1.0)]) == math.inf
    assert fig7.settled_after([(15.0, 2.0), (15.2, 0.5)]) == pytest.approx(0.2)


def test_a_draw_with_some_runs_missing(tmp_path: Path) -> None:
    only = Results({"baseline": a_result(a_run("fps", limiters=SPLIT))})
    draws(fig3.FIGURE, only, tmp_path)
    draws(fig4.FIGURE, only, tmp_path)
    assert fig5.FIGURE.draw(only, tmp_path) == []


def check_of(figure: Figure, results: Results, statement: str) -> Any:
    (found,) = [
        check for check in figure.evaluate(results).checks if check.statement.startswith(statement)
    ]
    return found


def test_the_aggregate_is_that_of_the_measured_time() -> None:
    check = check_of(fig3.FIGURE, baseline(), "FPS: aggregate")
    assert check.value == pytest.approx(1.0)
