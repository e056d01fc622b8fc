"""Testbed and simulator side by side: the checks from both sides, on results that were made up."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from testbed.harness.finding import Verdict
from testbed.harness.results import Results
from testbed.studies import daemons, trust
from tests.reproduce_factories import Rate, a_result, a_run, constant, draws, failed


def changing(before: float, between: float, after: float) -> Rate:
    """Of figure 7: until 15 s, until 31 s, and then."""
    return lambda time_s: before if time_s < 15 else between if time_s < 31 else after


def a_side(
    allocators: list[str], rates: Mapping[str, Rate], jain: float, seconds: float, odd: float
) -> dict[str, Any]:
    """`odd` is what flows unlike the others have beside these rates, Mbit/s."""
    flows = [{"limiter": name, "rate": rate} for name, rate in rates.items()]
    runs = [
        a_run(name, limiters=rates, flows=flows, jain=jain, seconds=seconds) for name in allocators
    ]
    for run in runs:
        run["udp"] = [
            {"id": f"{name}.1", "limiter": "l2", "goodput_bps": odd * 1e6,
             "goodput_series_bps": [0.0] * 400}
            for name in ("udp", "fast", "bbr-l2")
        ]  # fmt: skip
    return a_result(*runs, definition={"allocators": allocators})


STEADY: dict[str, Rate] = {"l1": constant(3), "l2": constant(7)}
FIGURE_7: dict[str, Rate] = {"l1": changing(3, 8, 6), "l2": changing(7, 2, 4)}


def both(
    simulated: Mapping[str, Mapping[str, Rate]] | None = None,
    jain: Mapping[str, float] | None = None,
    odd: Mapping[str, float] | None = None,
) -> Results:
    """All agree but for what is said of the simulator, by the experiment's name."""
    found = {}
    for pair in trust.PAIRS:
        name = pair.testbed.name
        rates = FIGURE_7 if name == "bottleneck" else STEADY
        seconds = 60.0 if name == "bottleneck" else 20.0
        allocators = list(pair.allocators)
        found[name] = a_side(allocators, rates, 0.98, seconds, 1.0)
        found[pair.simulated.name] = a_side(
            allocators, (simulated or {}).get(name, rates), (jain or {}).get(name, 0.96), seconds,
            (odd or {}).get(name, 1.2),
        )  # fmt: skip
    return Results(found)


def test_two_that_agree_can_be_trusted(tmp_path: Path) -> None:
    assert failed(trust.FIGURE, both()) == []
    draws(trust.FIGURE, both(), tmp_path)
    (table,) = trust.FIGURE.evaluate(both()).tables
    assert [row for row in table.rows if row[0] == "figure 7: FPS"] == [
        ["figure 7: FPS", *["1.000, 1.000, 1.000"] * 2, *["0.300, 0.800, 0.600"] * 2, "0.980",
         "0.960", "-", "-"],
    ]  # fmt: skip
    (mixed,) = [row for row in table.rows if row[0] == "mixed round trips: fair"]
    assert mixed[-2:] == ["0.100", "0.120"]


@pytest.mark.parametrize(
    ("simulated", "jain", "odd", "statements"),
    [
        ({"baseline": {"l1": constant(3.15), "l2": constant(7.35)}}, {}, {},
         ["baseline: aggregate"]),
        ({"join": {"l1": constant(3.4), "l2": constant(6.6)}}, {}, {}, ["a flow joins: share"]),
        ({}, {"join": 0.9}, {}, ["a flow joins: Jain's index"]),
        # Only one of the phases.
        ({"bottleneck": {"l1": changing(3, 8, 5), "l2": changing(7, 2, 5)}}, {}, {},
         ["figure 7: share"]),
        ({"bottleneck": {"l1": changing(3, 7.5, 6), "l2": changing(7, 2, 4)}}, {}, {},
         ["figure 7: aggregate"]),
        ({}, {}, {"any-traffic/udp-3-testbed": 1.4},
         ["UDP of 3 Mbit/s beside TCP: part of the limit"]),
        ({}, {}, {"any-traffic/bbr-testbed": 0.6},
         ["BBR beside New Reno and CUBIC: part of the limit"]),
        ({"any-traffic/lone-cubic-40ms-testbed": {"l1": constant(3.15), "l2": constant(7.35)}}, {},
         {}, ["a lone CUBIC flow, no path delay, burst 40 ms: aggregate"]),
        # Of a lone flow share and Jain's index say nothing.
        ({"any-traffic/lone-cubic-40ms-testbed": {"l1": constant(4), "l2": constant(6)}},
         {"any-traffic/lone-cubic-40ms-testbed": 0.5}, {}, []),
    ],
)  # fmt: skip
def test_two_that_differ_cannot(
    simulated: dict[str, dict[str, Rate]],
    jain: dict[str, float],
    odd: dict[str, float],
    statements: list[str],
) -> None:
    found = failed(trust.FIGURE, both(simulated, jain, odd))
    assert len(found) == len(statements)
    assert all(one.startswith(start) for one, start in zip(found, statements, strict=True))


def test_both_are_the_same_experiment() -> None:
    for pair in trust.PAIRS:
        for quick in (False, True):
            here, there = (
                {**one.load(quick).definition, "repeat": None}
                for one in (pair.testbed, pair.simulated)
            )
            assert here == there
    for quick in (False, True):
        for fleet in (daemons.FORTY, daemons.HUNDRED):
            here, there = (one.load(quick).definition for one in (fleet.testbed, fleet.simulated))
            assert here == there


def test_the_fleet_has_as_many_daemons_as_its_name_says() -> None:
    for fleet in (daemons.FORTY, daemons.HUNDRED):
        assert len(fleet.testbed.load(False).limiters) == fleet.limiters
        assert fleet.testbed.name == f"fleet{fleet.limiters}"


FLEET40, FLEET100 = daemons.FIGURES


def a_fleet(
    used: float, jain: float, believed: float, *, daemons: int = 0, limiters: int = 40
) -> dict[str, Any]:
    names = [f"l{number}" for number in range(1, limiters + 1)]
    rates = {name: constant(10 * used / limiters) for name in names}
    cost = {"core_share": 0.02, "resident_bytes": 50e6, "peak_bytes": 60e6}
    run = a_run(
        "fps", limiters=rates, jain=jain, flows=[{"limiter": "l1", "rate": constant(0.1)}],
        gossip={"bytes_per_limiter_per_s": 2880.0,
                "believed_total": {"rms_error": believed, "series": [[0.0, believed]]}},
    )  # fmt: skip
    return a_result(run | ({"daemons": dict.fromkeys(names[:daemons], cost)} if daemons else {}))


def fleets(used: float = 0.99, jain: float = 0.93, believed: float = 0.05, **more: int) -> Results:
    return Results(
        {
            "fleet40": a_fleet(used, jain, believed, daemons=40, **more),
            "fleet40-sim": a_fleet(1.0, 0.94, 0.04),
        }
    )


def test_forty_daemons_as_they_are_to_be(tmp_path: Path) -> None:
    assert failed(FLEET40, fleets()) == []
    draws(FLEET40, fleets(), tmp_path)
    found = FLEET40.evaluate(fleets())
    assert "a daemon takes 0.020 of a core and 50 MB" in found.ours
    assert ["processor time of a daemon, of a core: sum", "0.8000", "-"] in found.tables[0].rows


@pytest.mark.parametrize(
    ("changes", "statements"),
    [
        ({"used": 0.96}, ["FPS: aggregate over the limit", "FPS: aggregate over the limit, testb"]),
        ({"used": 1.035}, ["FPS: aggregate over the limit"] * 2),
        ({"jain": 0.90}, ["FPS: Jain's index"]),
        ({"believed": 0.08}, ["FPS: error of the believed total"]),
        ({"limiters": 39}, ["Limiters"]),
    ],
)
def test_another_fleet_fails(changes: dict[str, Any], statements: list[str]) -> None:
    found = failed(FLEET40, fleets(**changes))
    assert len(found) == len(statements)
    assert all(one.startswith(start) for one, start in zip(found, statements, strict=True))


def test_a_hundred_are_judged_by_their_own_number_and_limit() -> None:
    result = fleets(used=1.5, limiters=100).by_series["fleet40"]
    checks = FLEET100.evaluate(Results({"fleet100": {**result, "limit_bps": 15e6}})).checks
    assert [check.verdict for check in checks[:2]] == [Verdict.PASSED] * 2
    assert checks[0].least == 100


def test_a_fleet_is_drawn_without_the_other(tmp_path: Path) -> None:
    alone = Results({"fleet40": fleets().by_series["fleet40"]})
    draws(FLEET40, alone, tmp_path)
    verdicts = [check.verdict for check in FLEET40.evaluate(alone).checks]
    assert verdicts == [Verdict.PASSED] * 2 + [Verdict.MISSING] * 3
