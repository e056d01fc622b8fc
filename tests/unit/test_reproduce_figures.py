"""Details of single figures and tables; test_reproduce_judging.py has their checks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from testbed.harness.figure import Figure
from testbed.harness.finding import Verdict
from testbed.harness.results import Results, windows
from testbed.reproduce import fig3, fig4, fig5, fig6, fig7, fig8, fig9, sensitivity, table1, table2
from tests.reproduce_factories import Rate, a_result, a_run, constant, draws, failed
from tests.reproduce_results import (
    SPLIT,
    STEADY_FLOWS,
    baseline,
    bottleneck,
    cells,
    dynamic_run,
    dynamics,
    figure_9,
    following,
    round_trips,
    scale,
    steps,
    table_1,
)


def test_the_aggregate_is_that_of_the_measured_time() -> None:
    checks = fig3.FIGURE.evaluate(baseline()).checks
    (check,) = [check for check in checks if check.statement.startswith("FPS: aggregate")]
    assert check.value == pytest.approx(1.0)


def test_figures_have_statements_in_words() -> None:
    # The 3 s means reach within 0.5 Mbit/s of 8 : 2 as soon as 0.3 s of the old split are in them.
    said = "FPS: 8 : 2 after 0.8 s, 6 : 4 after 0.4 s"
    assert said in fig7.FIGURE.evaluate(bottleneck()).ours
    assert "control traffic 0.226 of the limit" in fig8.FIGURE.evaluate(scale()).ours


def test_the_tables_have_the_figures_of_the_runs() -> None:
    (table,) = table2.FIGURE.evaluate(round_trips()).tables
    assert table.rows[2] == ["FPS", "10.10", "1.10 (0.00)", "0.80 (0.00)",
                             "10.43", "0.92 (0.15)", "0.57 (0.05)"]  # fmt: skip
    (table,) = sensitivity.FIGURE.evaluate(cells()).tables
    assert [row[0] for row in table.rows] == [
        "GTB, 10 ms, EWMA 0", "GRD, 10 ms, EWMA 0", "FPS, 10 ms, EWMA 0", "GRD, 10 ms, EWMA 0.75",
        "FPS, 10 ms, EWMA 0.75", "FPS, 500 ms, EWMA 0", "FPS, 500 ms, EWMA 0.75",
    ]  # fmt: skip
    (table,) = fig9.FIGURE.evaluate(figure_9()).tables
    assert table.rows[0][3] == "0.400"
    assert table.rows[1][1:] == ["1.000", "1.000", "1.000", "1.000", "1.000", "1.00"]


def test_table_1_has_the_figures_of_the_runs() -> None:
    (table,) = table1.FIGURE.evaluate(table_1()).tables
    by_label = {row[0]: row[1:] for row in table.rows}
    assert by_label["Goodput, web"][:3] == ["1796.06", "1974.35", "2090.25"]
    assert by_label["Goodput, web"][3:] == ["1800.00", "1970.00", "2090.00", "2090.00", "2090.00"]
    assert by_label["Web rate, [0, 5000)"][3] == "28.00"
    assert by_label["Fairness, bulk"][3] == "0.971"
    none_finished = {"ctb": (28.0, 276.0, 472.0, None)}
    (table,) = table1.FIGURE.evaluate(table_1(rates=none_finished)).tables
    assert table.rows[-2][4] == "-"


def test_quantiles_of_samples_that_differ_in_size() -> None:
    assert fig5.quantiles([1, 2, 3], [10, 30]) == [(1, 10), (3, 30)]
    assert fig5.quantiles([1.0, 2.0, 4.0, 8.0], [1, 2, 3]) == [(1, 1), (3, 2), (8, 3)]
    assert fig5.quantiles([], [1.0]) == []


def test_windows_are_whole_and_begin_where_they_should() -> None:
    assert windows([1, 1, 2, 4, 9], 0.5, 1.0, 0.5, 2.5) == [1.5, 6.5]
    assert windows([1, 1, 2, 4, 9], 0.5, 1.0, 0.0, 2.5) == [1, 3]


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


def test_flows_are_judged_between_the_changes_once_they_have_settled() -> None:
    phases = list(fig6.phases(dynamic_run("fps", STEADY_FLOWS)))
    assert [(begin, end, len(flows)) for begin, end, flows in phases] == [
        (9.0, 15.0, 1), (19.0, 25.0, 2), (29.0, 35.0, 3), (39.0, 45.0, 4), (49.0, 55.0, 5),
        (59.0, 65.0, 4), (69.0, 75.0, 3), (79.0, 85.0, 2), (89.0, 95.0, 1),
    ]  # fmt: skip


def test_half_of_figure_6_is_judged_by_its_own_runs(tmp_path: Path) -> None:
    half = Results({"dynamics-500ms": dynamics().by_series["dynamics-500ms"]})
    verdicts = {check.statement: check.verdict for check in fig6.evaluate(half).checks}
    assert verdicts["FPS with 500 ms: distance of a flow from its fair share"] is Verdict.PASSED
    assert list(verdicts.values()).count(Verdict.MISSING) == 12
    assert Verdict.FAILED not in verdicts.values()
    draws(fig6.FIGURE, half, tmp_path)


def test_a_quick_figure_8_is_judged_by_what_it_ran() -> None:
    every = scale().by_series
    quick = Results({one.name: every[one.name] for one in fig8.FIGURE.series(True)})
    assert failed(fig8.FIGURE, quick) == []
    assert not any(check.statement.startswith("490") for check in fig8.evaluate(quick).checks)


@pytest.mark.parametrize(
    ("changes", "what"), [({"jain": 0.8}, "Jain's"), ({"aggregate_bps": 11e6}, "the aggregates")]
)
def test_a_testbed_that_differs_from_the_simulator_fails(
    changes: dict[str, float], what: str
) -> None:
    results = cells()
    spot = results.by_series[sensitivity.SPOTS[500, 0.75].name]
    spot["runs"][0] = {**spot["runs"][0], **changes}
    (found,) = failed(sensitivity.FIGURE, results)
    statement = "Testbed and simulator agree, FPS, 500 ms, EWMA 0.75: difference of"
    assert found.startswith(f"{statement} {what}")


def test_the_smallest_interval_without_a_filter_is_judged_on_the_testbed() -> None:
    results = cells({("gtb", (10, 0)): 0.87})
    spot = results.by_series[sensitivity.SPOTS[10, 0].name]
    (index,) = (number for number, run in enumerate(spot["runs"]) if run["allocator"] == "gtb")
    spot["runs"][index] = {**spot["runs"][index], "jain": 0.91}
    assert failed(sensitivity.FIGURE, results) == []
    spot["runs"][index] = {**spot["runs"][index], "jain": 0.89}
    (found,) = failed(sensitivity.FIGURE, results)
    assert found.startswith("GTB is fair with the smallest interval and no filter, on the testbed")


def test_rates_of_several_runs_are_one_harmonic_mean_over_their_requests() -> None:
    def run(finished: int, rate_bps: float | None) -> dict[str, Any]:
        return {"web": {"classes": [{"finished": finished, "rate_bps": rate_bps}]}}

    assert table1.class_rate([run(1, 10.0), run(3, 30.0), run(0, None)], 0) == pytest.approx(20)
    assert table1.class_rate([run(0, None)], 0) is None


@pytest.mark.parametrize("figure", [table1.FIGURE, fig9.FIGURE], ids=lambda figure: figure.name)
@pytest.mark.parametrize("results", [Results({}), figure_9(static=following, demand=[])])
def test_without_runs_nothing_holds_and_nothing_breaks(
    figure: Figure, results: Results, tmp_path: Path
) -> None:
    checks = figure.evaluate(results).checks
    assert Verdict.MISSING in {check.verdict for check in checks}
    figure.draw(results, tmp_path)
