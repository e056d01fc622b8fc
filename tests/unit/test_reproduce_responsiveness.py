"""Responsiveness: which events count where, and what was not measured."""

from __future__ import annotations

from pathlib import Path

from testbed.harness.results import Results
from testbed.studies.responsiveness import FIGURE
from tests.reproduce_factories import failed
from tests.study_results import KINDS, an_event, responses


def test_an_event_counts_in_the_experiment_that_is_about_it() -> None:
    slow = an_event("leave", 9.0, highest_1s_bps=20e6, first_1s_bps=20e6)
    assert failed(FIGURE, responses({"join": [an_event("join", 0.2), slow]})) == []


def test_a_missing_measurement_is_no_success() -> None:
    assert len(failed(FIGURE, Results({}))) == 2 * (len(KINDS) + 3)


def test_the_first_second_of_a_run_that_did_not_record_it_is_not_measured() -> None:
    event = an_event("join", 0.2)
    del event["first_1s_bps"]
    (found,) = failed(FIGURE, responses({kind: [{**event, "kind": kind}] for kind in KINDS}))
    assert found.startswith("FPS: highest 1 s window over the limit, begun within")


def test_the_simulator_has_a_table_and_a_plot_of_its_own(tmp_path: Path) -> None:
    found = responses(name="-sim")
    testbed, simulated = FIGURE.evaluate(found).tables
    assert testbed.rows == []
    assert simulated.rows[0] == ["a flow joins: FPS", "1", "0.40", "0.60", "0%", "1.02", "1.04"]
    (file,) = FIGURE.draw(found, tmp_path)
    assert file.name == "responsiveness-simulated.png"
