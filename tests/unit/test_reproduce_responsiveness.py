"""The checks of responsiveness from both sides, on results that were made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.harness.results import Results
from testbed.reproduce.baseline import NAMES
from testbed.studies.responsiveness import FIGURE
from tests.reproduce_factories import failed

KINDS = ("join", "leave", "bottleneck", "limit", "death")


def an_event(kind: str, *t80_s: float | None, **changes: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "limit_bps": 10e6,
        "first_1s_bps": 10.4e6,
        "highest_1s_bps": 10.2e6,
        "in_force_s": 2.4 if kind == "death" else None,
        "flows": [{"t80_s": time_s} for time_s in t80_s],
        **changes,
    }


def results(
    changed: dict[str, list[dict[str, Any]]] | None = None, name: str = "", allocator: str = "fps"
) -> Results:
    """FPS and fair meet every goal, but for what is changed of one of them."""
    events = {kind: [an_event(kind, 0.2, 0.6, 0.4)] for kind in KINDS}
    events["bottleneck"] = [an_event("bottleneck", 3.0)]
    events["death"] = [an_event("death", 2.8)]
    other = {"fps": "fair", "fair": "fps"}[allocator]
    return Results(
        {
            f"responsiveness{name}/{kind}": {
                "runs": [
                    {"allocator": name, "repetition": 1, "events": found}
                    for name, found in ((allocator, (changed or {}).get(kind, good)), (other, good))
                ]
            }
            for kind, good in events.items()
        }
    )


def test_all_goals_can_be_met(tmp_path: Path) -> None:
    assert failed(FIGURE, results()) == []
    (file,) = FIGURE.draw(results(), tmp_path)
    assert file.name == "responsiveness.png"


@pytest.mark.parametrize("allocator", ["fps", "fair"])
@pytest.mark.parametrize(
    ("kind", "event", "statement"),
    [
        ("join", an_event("join", 0.2, 1.2, 1.4), ", a flow joins"),
        ("leave", an_event("leave", 0.2, 1.2, 1.4), ", a flow leaves"),
        ("bottleneck", an_event("bottleneck", 5.2), ", others are bottlenecked"),
        ("limit", an_event("limit", 1.2), ", the limit grows"),
        ("death", an_event("death", 3.6), ", a limiter dies"),
        ("limit", an_event("limit", 0.2, highest_1s_bps=11.6e6),
         ": highest 1 s window over the limit, from 1 s after each event"),
        ("join", an_event("join", 0.2, first_1s_bps=11.6e6),
         ": highest 1 s window over the limit, of those that begin within 1 s after an event"),
        ("join", an_event("join", *[0.2] * 15, None), ": part of the flows that never"),
    ],
)  # fmt: skip
def test_a_goal_that_is_missed_fails(
    kind: str, event: dict[str, Any], statement: str, allocator: str
) -> None:
    (found,) = failed(FIGURE, results({kind: [event]}, allocator=allocator))
    assert found.startswith(NAMES[allocator] + statement)


def test_an_event_counts_in_the_experiment_that_is_about_it() -> None:
    slow = an_event("leave", 9.0, highest_1s_bps=20e6, first_1s_bps=20e6)
    assert failed(FIGURE, results({"join": [an_event("join", 0.2), slow]})) == []


def test_what_was_not_measured_is_no_success() -> None:
    assert len(failed(FIGURE, Results({}))) == 2 * (len(KINDS) + 3)


def test_the_first_second_of_a_run_that_did_not_record_it_is_not_measured() -> None:
    event = an_event("join", 0.2)
    del event["first_1s_bps"]
    (found,) = failed(FIGURE, results({kind: [{**event, "kind": kind}] for kind in KINDS}))
    assert found.startswith("FPS: highest 1 s window over the limit, of those that begin within")


def test_the_simulator_has_a_table_and_a_plot_of_its_own(tmp_path: Path) -> None:
    found = results(name="-sim")
    testbed, simulated = FIGURE.evaluate(found).tables
    assert testbed.rows == []
    assert simulated.rows[0] == ["a flow joins: FPS", "1", "0.40", "0.60", "0%", "1.02", "1.04"]
    (file,) = FIGURE.draw(found, tmp_path)
    assert file.name == "responsiveness-simulated.png"
