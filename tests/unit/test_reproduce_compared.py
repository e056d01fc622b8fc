"""Testbed and simulator side by side: the same experiments, and the rows that compare them."""

from __future__ import annotations

from pathlib import Path

from testbed.harness.finding import Verdict
from testbed.harness.results import Results
from testbed.studies import daemons, trust
from tests.reproduce_factories import draws
from tests.study_results import both, fleets


def test_the_table_compares_both_sides_row_by_row() -> None:
    (table,) = trust.FIGURE.evaluate(both()).tables
    assert [row for row in table.rows if row[0] == "figure 7: FPS"] == [
        ["figure 7: FPS", *["1.000, 1.000, 1.000"] * 2, *["0.300, 0.800, 0.600"] * 2, "0.980",
         "0.960", "-", "-"],
    ]  # fmt: skip
    (mixed,) = [row for row in table.rows if row[0] == "mixed round trips: fair"]
    assert mixed[-2:] == ["0.100", "0.120"]


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


def test_the_cost_of_a_fleet_is_stated() -> None:
    found = FLEET40.evaluate(fleets())
    assert "a daemon takes 0.020 of a core and 50 MB" in found.ours
    assert ["processor time of a daemon, of a core: sum", "0.8000", "-"] in found.tables[0].rows


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
