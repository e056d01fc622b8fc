"""Figure 6, table 2, the 5,000 flows and the sensitivity: checks from both sides, and plots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from testbed.harness.finding import Verdict
from testbed.harness.results import Results
from testbed.reproduce import fig6, fig8, flows5000, sensitivity, table2
from testbed.reproduce.baseline import FPS
from testbed.result import GOODPUT_SHARE
from tests.reproduce_factories import Rate, a_result, a_run, constant, draws, failed

LIMITERS = [f"l{number}" for number in range(1, 6)]
STEP_S = 10.0


def alive(time_s: float) -> list[int]:
    """Which of the five live: they join every 10 s from 5 s on, and leave in the same order."""
    return [
        number for number in range(5)
        if 5 + number * STEP_S <= time_s < 5 + (number + 5) * STEP_S
    ]  # fmt: skip


def sharing(swing: float, period_s: float, unfair: float = 0.0, used: float = 1.0) -> list[Rate]:
    """Fair shares, which swing by a part of them.

    Where an even number of flows live, every other one gets more by `unfair`, of its share.
    """

    def of(number: int) -> Rate:
        def rate(time_s: float) -> float:
            if number not in alive(time_s):
                return 0.0
            others = len(alive(time_s))
            share = 1 if others % 2 else 1 + unfair * (-1) ** number
            swung = 1 + swing * math.sin(2 * math.pi * time_s / period_s)
            return used * 10.0 / others * share * swung

        return rate

    return [of(number) for number in range(5)]


def dynamic_run(allocator: str, rates: Sequence[Rate]) -> dict[str, Any]:
    def payload(rate: Rate) -> Rate:
        return lambda time_s: rate(time_s) * GOODPUT_SHARE

    flows = [
        {"limiter": limiter, "rate": payload(rate), "start_s": 5 + number * STEP_S + 0.01,
         "end_s": 5 + (number + 5) * STEP_S}
        for number, (limiter, rate) in enumerate(zip(LIMITERS, rates, strict=True))
    ]  # fmt: skip
    limiters = dict(zip(LIMITERS, rates, strict=True))
    return a_run(allocator, limiters=limiters, flows=flows, seconds=95.0, warmup_s=5.0)


STEADY = sharing(0.02, 4.0)
CHAOTIC = sharing(0.9, 4.0)


def dynamics(**changes: Sequence[Rate]) -> Results:
    rates: dict[str, Sequence[Rate]] = {
        "ctb": sharing(0.12, 4.0, unfair=0.3),
        "grd": sharing(0.1, 4.0),
        "slow": CHAOTIC,
        "fps": STEADY,
        "printed": STEADY,
        "fair": STEADY,
        "deep": STEADY,
        **changes,
    }
    fast = a_result(dynamic_run("ctb", rates["ctb"]), dynamic_run("grd", rates["grd"]))
    slow = a_result(
        dynamic_run("grd", rates["slow"]), dynamic_run("fps", rates["fps"]),
        dynamic_run("fps-paper", rates["printed"]), dynamic_run("fair", rates["fair"]),
    )  # fmt: skip
    deep = a_result(*(dynamic_run(name, rates["deep"]) for name in FPS))
    return Results({"dynamics-50ms": fast, "dynamics-500ms": slow, "dynamics-deep-fps": deep})


def test_figure_6_as_the_paper_has_it(tmp_path: Path) -> None:
    assert failed(fig6.FIGURE, dynamics()) == []
    draws(fig6.FIGURE, dynamics(), tmp_path)


def test_flows_are_judged_between_the_changes_once_they_have_settled() -> None:
    phases = list(fig6.phases(dynamic_run("fps", STEADY)))
    assert [(begin, end, len(flows)) for begin, end, flows in phases] == [
        (9.0, 15.0, 1), (19.0, 25.0, 2), (29.0, 35.0, 3), (39.0, 45.0, 4), (49.0, 55.0, 5),
        (59.0, 65.0, 4), (69.0, 75.0, 3), (79.0, 85.0, 2), (89.0, 95.0, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "statements"),
    [
        ({"slow": sharing(0.1, 4.0)}, ["GRD with 500 ms is chaotic"] * 2),
        ({"grd": sharing(0.4, 4.0)}, ["GRD with 50 ms follows CTB"]),
        ({"grd": sharing(0.1, 4.0, unfair=0.4)}, ["GRD with 50 ms is fairer"]),
        ({"fps": sharing(0.11, 4.0)}, ["FPS with 500 ms is the steadiest"]),
        ({"fps": sharing(0.02, 4.0, unfair=0.3)}, ["FPS with 500 ms: distance"]),
        ({"fps": sharing(0.02, 4.0, used=0.95)}, ["FPS with 500 ms: aggregate"] * 2),
        ({"fps": sharing(0.02, 4.0, used=0.96), "ctb": sharing(0.12, 4.0, unfair=0.3, used=0.96)},
         ["FPS with 500 ms: aggregate over the limit"]),
        ({"printed": sharing(0.11, 4.0)}, ["FPS as printed with 500 ms is the steadiest"]),
        ({"printed": sharing(0.02, 4.0, unfair=0.3)}, ["FPS as printed with 500 ms: distance"]),
        ({"fair": sharing(0.11, 4.0)}, ["fair with 500 ms is the steadiest"]),
        ({"deep": sharing(0.02, 4.0, used=0.95)},
         [f"{name} with 500 ms and the depth" for name in ("FPS", "FPS as printed", "fair")]),
        ({"fps": sharing(0.02, 4.0, used=1.2)},
         ["FPS with 500 ms: 1 s windows", "FPS with 500 ms: distance",
          "FPS with 500 ms: aggregate"]),
    ],
)  # fmt: skip
def test_unsteady_or_unfair_flows_fail_figure_6(
    changes: dict[str, Sequence[Rate]], statements: list[str]
) -> None:
    found = failed(fig6.FIGURE, dynamics(**changes))
    assert len(found) == len(statements)
    assert all(one.startswith(start) for one, start in zip(found, statements, strict=True))


def round_trips(**changes: tuple[float, float]) -> Results:
    """(long, short) Mbit/s a flow by allocator."""
    rates = {
        "ctb": (0.1, 1.41), "grd": (0.16, 1.37), "fps": (0.8, 1.1), "fps-paper": (0.8, 1.1),
        "fair": (0.8, 1.1), **changes,
    }  # fmt: skip
    runs = []
    for name, (long, short) in rates.items():
        flows = [{"limiter": "l1", "rate": constant(long)}] * 3
        flows += [{"limiter": "l2", "rate": constant(short)}] * 7
        limiters = {"l1": constant(3 * long), "l2": constant(7 * short)}
        runs += [a_run(name, number, limiters=limiters, flows=flows) for number in (1, 2)]
    return Results({"rtt-mix": a_result(*runs)})


def test_table_2_as_the_paper_has_it(tmp_path: Path) -> None:
    assert failed(table2.FIGURE, round_trips()) == []
    draws(table2.FIGURE, round_trips(), tmp_path)
    (table,) = table2.FIGURE.evaluate(round_trips()).tables
    assert table.rows[2] == ["FPS", "10.10", "1.10 (0.00)", "0.80 (0.00)",
                             "10.43", "0.92 (0.15)", "0.57 (0.05)"]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "statements"),
    [
        ({"fps": (0.76, 1.0)}, ["FPS: aggregate", "FPS delivers CTB's"]),
        ({"grd": (0.2, 1.2)}, ["GRD delivers CTB's"]),
        ({"fps": (0.5, 1.22)}, ["FPS is no less fair"]),
        ({"fps": (0.99, 1.0)}, ["FPS: goodput of a long flow (paper: 0.57)"]),
        ({"fps": (0.3, 1.3)}, ["FPS: goodput of a long flow (paper: 0.57)", "FPS is no"]),
        (
            {"fps-paper": (1.4, 0.83)},
            ["FPS as printed: goodput of a long flow (paper: 0.57)", "FPS as printed is no less"],
        ),
        ({"fair": (1.4, 0.83)}, ["fair: goodput of a long flow (paper: 0.57)", "fair is no less"]),
        ({"grd": (0.05, 1.42)}, ["GRD: goodput of a long flow (paper: 0.16)", "GRD: long flows'"]),
        ({"grd": (0.25, 1.33)}, ["GRD: goodput of a long flow (paper: 0.16)"]),
        ({"ctb": (0.16, 1.38), "grd": (0.17, 1.37)}, ["CTB: goodput of a long flow (paper: 0.10)"]),
        (
            {"ctb": (0.35, 1.3), "grd": (0.36, 1.29)},
            ["CTB: goodput of a long flow", "GRD: goodput of a long flow", "CTB: short flows"],
        ),
    ],
)
def test_wrong_rates_fail_table_2(
    changes: dict[str, tuple[float, float]], statements: list[str]
) -> None:
    found = failed(table2.FIGURE, round_trips(**changes))
    assert len(found) == len(statements)
    assert all(one.startswith(start) for one, start in zip(found, statements, strict=True))


def many(**changes: tuple[float, float] | tuple[float, float, float]) -> Results:
    """(Mbit/s, Jain) by allocator, and the share of the 1,500 flows where it is not 0.3."""
    found: dict[str, tuple[float, ...]] = {
        "ctb": (50.0, 0.34), "grd": (52.0, 0.44), "fps": (47.0, 0.33),
        "fps-paper": (47.0, 0.33), "fair": (47.0, 0.33), **changes,
    }  # fmt: skip
    flows = [{"limiter": "l1", "rate": constant(rate)} for rate in (0.0, 0.01, 0.02)]
    runs = [
        a_run(name, limiters={"l1": constant(share * rate), "l2": constant((1 - share) * rate)},
              flows=flows, jain=jain)
        for name, (rate, jain, share, *_) in ((name, (*one, 0.3)) for name, one in found.items())
    ]  # fmt: skip
    return Results({"many-flows": a_result(*runs, limit_bps=50e6)})


def test_5000_flows_as_the_paper_has_them(tmp_path: Path) -> None:
    assert failed(flows5000.FIGURE, many()) == []
    draws(flows5000.FIGURE, many(), tmp_path)


@pytest.mark.parametrize(
    ("changes", "statements"),
    [
        ({"fps": (44.0, 0.33)}, ["FPS: aggregate"]),
        ({"fps": (47.0, 0.22)}, ["FPS: Jain's index", "FPS is about as fair"]),
        ({"ctb": (50.0, 0.45)}, ["CTB: Jain's index"]),
        ({"grd": (52.0, 0.48)}, ["GRD is about as fair"]),
        ({"grd": (52.0, 0.56)}, ["GRD: Jain's index", "GRD is about as fair"]),
        ({"fps": (47.0, 0.33, 0.5)}, ["FPS: share"]),
        ({"fps": (47.0, 0.33, 0.26)}, ["FPS: share"]),
        ({"fair": (47.0, 0.33, 0.26)}, ["fair: share"]),
    ],
)
def test_wrong_use_fairness_or_split_fails_the_5000_flows(
    changes: dict[str, tuple[float, float]], statements: list[str]
) -> None:
    found = failed(flows5000.FIGURE, many(**changes))
    assert len(found) == len(statements)
    assert all(one.startswith(start) for one, start in zip(found, statements, strict=True))


def swinging(mbit: float, by: float) -> dict[str, Rate]:
    return {"l1": lambda time_s: mbit + by * math.sin(2 * math.pi * time_s / 4.0)}


def cells(
    jain: Mapping[tuple[str, tuple[int, float]], float] | None = None,
    rates: Mapping[tuple[str, tuple[int, float]], dict[str, Rate]] | None = None,
) -> Results:
    """The grid as the paper has it, but for what is said of an allocator's cell."""
    usual = {"gtb": 0.7, "grd": 0.99, **dict.fromkeys(FPS, 0.97)}
    index = {("gtb", (10, 0)): 0.95, **(jain or {})}
    how = {("grd", (500, 0.1)): swinging(10, 9), **(rates or {})}
    found = {
        series.name: a_result(
            *(
                a_run(name, limiters=how.get((name, cell), {"l1": constant(10)}),
                      jain=index.get((name, cell), value), seconds=4.0)
                for name, value in usual.items()
            )
        )
        for cell, series in sensitivity.GRID.items()
    }  # fmt: skip
    long = a_run("gtb", limiters={"l1": constant(10)}, jain=0.9)
    found[sensitivity.LONG_RTT.name] = a_result(long)
    for cell, spot in sensitivity.SPOTS.items():
        own = [run for run in found[sensitivity.GRID[cell].name]["runs"] if
               run["allocator"] in spot.load(False).table.allocators]  # fmt: skip
        found[spot.name] = a_result(*own)
    return Results(found)


def test_the_sensitivity_as_the_paper_has_it(tmp_path: Path) -> None:
    assert failed(sensitivity.FIGURE, cells()) == []
    draws(sensitivity.FIGURE, cells(), tmp_path)
    (table,) = sensitivity.FIGURE.evaluate(cells()).tables
    assert [row[0] for row in table.rows] == [
        "GTB, 10 ms, EWMA 0", "GRD, 10 ms, EWMA 0", "FPS, 10 ms, EWMA 0", "GRD, 10 ms, EWMA 0.75",
        "FPS, 10 ms, EWMA 0.75", "FPS, 500 ms, EWMA 0", "FPS, 500 ms, EWMA 0.75",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("jain", "rates", "statement"),
    [
        ({("gtb", (ms, 0.5)): 0.95 for ms in (20, 50, 100, 200, 500)}
         | {("gtb", (20, 0)): 0.95}, {}, "GTB is unfair almost everywhere else"),
        ({("gtb", (50, 0)): 0.89}, {}, "GTB is fairer where round trips"),
        ({("grd", (500, 0.1)): 0.9}, {}, "GRD stays fair"),
        ({}, {("grd", (500, 0.1)): swinging(10, 1)}, "GRD loses short-term"),
        ({("fair", (200, 0.1)): 0.9}, {}, "fair is insensitive to the interval: range"),
        ({("fps", (200, 0.1)): 0.9}, {}, "FPS is insensitive to the interval: range"),
        ({}, {("fps", (200, 0.1)): swinging(9, 1)}, "FPS is insensitive to the interval: the"),
    ],
)  # fmt: skip
def test_another_sensitivity_fails(
    jain: dict[tuple[str, tuple[int, float]], float],
    rates: dict[tuple[str, tuple[int, float]], dict[str, Rate]],
    statement: str,
) -> None:
    (found,) = failed(sensitivity.FIGURE, cells(jain, rates))
    assert found.startswith(statement)


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


def scale(
    used: Mapping[tuple[str, int | str], float] | None = None,
    jain: Mapping[tuple[str, int, int], float] | None = None,
) -> Results:
    """Every size and branching: (allocator, limiters) over the limit, and Jain with branching."""
    share = {"ctb": 1.0, "grd": 0.99, "fps": 0.99}
    found = {}
    for (limiters, branching), series in fig8.SERIES.items():
        runs = [
            a_run(name, limiters={"fleet": constant(
                      50 * (used or {}).get((name, limiters), share[name]))},
                  jain=(jain or {}).get((name, limiters, branching), 0.9), seconds=2.0,
                  gossip={"bytes_per_limiter_per_s": 960.0 * branching})
            for name in series.load(False).table.allocators
        ]  # fmt: skip
        found[series.name] = a_result(*runs, limit_bps=50e6)
    rarely = a_run("fps", limiters={"fleet": constant(50 * (used or {}).get(("fps", 0), 1.0))},
                   gossip={"bytes_per_limiter_per_s": 360.0}, seconds=2.0)  # fmt: skip
    found[fig8.RARELY.name] = a_result(rarely, limit_bps=50e6)
    others = [(("fps", f"loss {loss:g}"), 1.0, series) for loss, series in fig8.LOSSY.items()]
    for limiters, series in fig8.HASTY.items():
        others += [(("grd", f"hasty {limiters}"), 1.2, series)]
        others += [(("fps", f"hasty {limiters}"), 1.0, series)]
    for key, usually, series in others:
        run = a_run(key[0], seconds=2.0,
                    limiters={"fleet": constant(50 * (used or {}).get(key, usually))})  # fmt: skip
        result = found.setdefault(series.name, a_result(run, limit_bps=50e6))
        result["runs"] = [*(one for one in result["runs"] if one is not run), run]
    return Results(found)


def test_figure_8_as_the_paper_has_it(tmp_path: Path) -> None:
    assert failed(fig8.FIGURE, scale()) == []
    draws(fig8.FIGURE, scale(), tmp_path)
    assert "control traffic 0.226 of the limit" in fig8.FIGURE.evaluate(scale()).ours


@pytest.mark.parametrize(
    ("used", "jain", "statement"),
    [
        ({("fps", 350): 1.1}, {}, "350 limiters: FPS with branching 3, aggregate"),
        ({("fps", 10): 0.9}, {}, "10 limiters: FPS with branching 3, aggregate"),
        ({}, {("fps", 100, 3): 0.8}, "100 limiters: FPS with branching 3, Jain's index"),
        ({("grd", "hasty 490"): 1.04}, {}, "490 limiters, EWMA of 0.1 an interval: GRD fails"),
        ({("fps", "hasty 100"): 1.06}, {}, "100 limiters, EWMA of 0.1 an interval: FPS"),
        ({("fps", "loss 0.05"): 1.06}, {}, "490 limiters, 5.0% of the updates lost: FPS"),
        ({}, {("fps", 490, 7): 0.98}, "Beyond branching 3"),
        ({("fps", 0): 1.06}, {}, "490 limiters that gossip every 400 ms: FPS"),
    ],
)
def test_another_scale_fails_figure_8(
    used: dict[tuple[str, int | str], float],
    jain: dict[tuple[str, int, int], float],
    statement: str,
) -> None:
    (found,) = failed(fig8.FIGURE, scale(used, jain))
    assert found.startswith(statement)


def test_a_quick_figure_8_is_judged_by_what_it_ran() -> None:
    every = scale().by_series
    quick = Results({one.name: every[one.name] for one in fig8.FIGURE.series(True)})
    assert failed(fig8.FIGURE, quick) == []
    assert not any(check.statement.startswith("490") for check in fig8.evaluate(quick).checks)


def test_half_of_figure_6_is_judged_by_its_own_runs(tmp_path: Path) -> None:
    half = Results({"dynamics-500ms": dynamics().by_series["dynamics-500ms"]})
    verdicts = {check.statement: check.verdict for check in fig6.evaluate(half).checks}
    assert verdicts["FPS with 500 ms: distance of a flow from its fair share"] is Verdict.PASSED
    assert list(verdicts.values()).count(Verdict.MISSING) == 12
    assert Verdict.FAILED not in verdicts.values()
    draws(fig6.FIGURE, half, tmp_path)
