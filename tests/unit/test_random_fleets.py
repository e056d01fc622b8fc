"""Random fleets: the draws, and the checks from both sides."""

from collections import Counter
from typing import Any

import pytest

from testbed.harness.finding import Verdict
from testbed.harness.results import Results
from testbed.sim.run import refuse
from testbed.studies.random_fleets import ALL_SERIES, FLEETS, evaluate
from testbed.studies.random_fleets_cases import document
from tests.reproduce_factories import a_result, a_run, constant

FAIR_PARTS, UNEVEN_PARTS = (0.5, 0.5), (0.9, 0.1)


def test_a_seed_always_draws_the_same_fleet_and_each_seed_another() -> None:
    assert document(3) == document(3)
    assert len({str(document(seed)["limit"]) for seed in range(1, FLEETS + 1)}) == FLEETS


def test_the_simulator_takes_every_fleet_and_all_kinds_of_traffic_occur() -> None:
    kinds: Counter[str] = Counter()
    for series in ALL_SERIES:
        fleet = series.load(False)
        refuse(fleet)
        assert 2 <= len(fleet.limiters) <= 20
        assert 50e3 / 8 <= fleet.table.limit.rate <= 1e9 / 8
        kinds.update(group.table.congestion for group in fleet.groups)
        kinds.update("web" for _ in fleet.web)
        kinds.update("pauses" if udp.table.on else "constant" for udp in fleet.udp)
    assert all(kinds[kind] > 10 for kind in ("reno", "cubic", "bbr", "web", "pauses", "constant"))


def verdicts(
    used: float,
    parts: tuple[float, float],
    most: float = 1.0,
    theirs: tuple[float, float] = UNEVEN_PARTS,
) -> list[Verdict]:
    """The checks if `fair` uses so much of the limit, and CTB all of it, unevenly.

    Args:
        used: what `fair` forwards, over the limit.
        parts: the parts of its two flows.
        most: what it forwards in the first two seconds, over the limit.
        theirs: the parts of the flows with CTB.
    """
    series = ALL_SERIES[6]
    fleet = series.load(False)
    seconds = fleet.table.seconds
    limit = fleet.table.limit.rate * 8e-6

    def run(name: str, use: float, parts: tuple[float, float], first: float) -> dict[str, Any]:
        flows = [
            {"limiter": limiter, "rate": constant(use * part * limit)}
            for limiter, part in zip(("l1", "l2"), parts, strict=True)
        ]
        made = a_run(
            name,
            limiters={"l1": lambda time_s: limit * (first if time_s < 2 else use)},
            flows=flows, seconds=seconds, warmup_s=4.0,
        )  # fmt: skip
        for flow in made["flows"]:
            flow["syn_s"] = flow["start_s"]
        return made

    runs = [run("fair", used, parts, most), run("ctb", 1.0, theirs, 1.0)]
    result = a_result(*runs) | {"definition": fleet.definition}
    return [check.verdict for check in evaluate(Results({series.name: result})).checks]


def test_all_checks_hold_for_an_even_fleet_that_uses_the_limit() -> None:
    assert verdicts(1.0, FAIR_PARTS) == [Verdict.PASSED] * 4


def test_a_bucket_in_which_udp_starves_all_tcp_flows_is_less_fair_than_any_division() -> None:
    assert verdicts(1.0, (1.0, 0.0), theirs=(0.0, 0.0)) == [Verdict.PASSED] * 4


@pytest.mark.parametrize(
    ("used", "parts", "most", "failing"),
    [
        (0.96, FAIR_PARTS, 1.0, {0}),
        (0.9, FAIR_PARTS, 1.0, {0, 1}),
        (1.0, (1.0, 0.0), 1.0, {2}),
        (1.0, FAIR_PARTS, 20.0, {3}),
    ],
)
def test_each_check_can_fail(
    used: float, parts: tuple[float, float], most: float, failing: set[int]
) -> None:
    found = verdicts(used, parts, most)
    assert {number for number, one in enumerate(found) if one is Verdict.FAILED} == failing
