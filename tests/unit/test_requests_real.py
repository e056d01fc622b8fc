"""Runs with real daemons: what is made of a user's answers, and a fleet of two."""

from __future__ import annotations

import pytest

from testbed.requests.case import Case
from testbed.requests.real.run import carry_out, measured
from testbed.requests.series import RealSeries

CASE = Case("steady", ("ledger-slack",), capacity=3, rate=1, per_s=1, nodes=2, load=50, seconds=1)


def test_answers_are_compared_with_one_bucket_that_is_asked_at_the_same_times() -> None:
    """Five at once of a bucket of three, and one refused a second and a half later."""
    answers = [(True, 100.0, 100.5)] * 5 + [(False, 101.5, 101.75)]
    found = measured(CASE, answers)
    assert (found["admitted"], found["central_admitted"]) == (5, 4)
    assert found["excess"] == 2
    assert found["shortfall"] == 0, "the bucket owes half a token still"
    assert (found["took_s"], found["median_ms"], found["longest_ms"]) == (1.75, 500, 500)


def test_the_shortfall_counts_what_the_answer_could_have_had() -> None:
    found = measured(CASE, [(True, 0.0, 0.0), (False, 0.5, 0.75)])
    assert found["shortfall"] == pytest.approx(3 - 1 + 0.5 + 0.25 - 1)


def test_two_daemons_are_one_bucket() -> None:
    definition = RealSeries("two", CASE).header(False, {})["definition"]
    found = carry_out(definition, "ledger-slack", 1)
    assert found["requests"] == 50
    assert 3 <= found["admitted"] <= found["central_admitted"] + CASE.nodes
    assert found["excess"] <= CASE.nodes
