"""Callers of a run: when they ask, what is counted, and what an experiment may say of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drld import config
from drld.errors import ConfigError
from drld.requests.spec import RequestMatch
from testbed.calls import CallsTable, due, summed
from testbed.errors import MeasurementError
from testbed.experiment import Experiment
from testbed.experiment_file import find, load
from testbed.fleet import daemon_document
from testbed.record import record
from testbed.sim.run import refuse
from testbed.topology import plan
from tests.testbed_factories import experiment, observation

CALLS = {"limiter": "calls", "count": 7, "rate": "3mbit", "size": "6kB"}
MS = 1_000_000


def with_calls(**changes: Any) -> Experiment:
    given: dict[str, Any] = {"calls": CALLS, "allocators": ["fair"], **changes}
    return experiment(**given)


@given(
    st.integers(1, 9),
    st.integers(1000, 10**6),
    st.integers(10_000, 10**5),
    st.lists(st.integers(0, 400), max_size=5),
)
def test_each_caller_asks_at_its_rate_however_time_is_cut(
    count: int, rate: int, size: int, spans_ms: list[int]
) -> None:
    table = CallsTable.model_construct(limiter="l1", count=count, rate=rate, size=size)
    now_ns, asked = 0, Counter[int]()
    every_ns = size * 10**9 // rate
    for span_ms in spans_ms:
        asked.update(due(table, now_ns, now_ns + span_ms * MS))
        now_ns += span_ms * MS
    for caller in range(count):
        assert abs(asked[caller] - now_ns / every_ns) <= 1


def test_bytes_of_steps_are_counts_at_samples() -> None:
    assert summed([5, 0, 7], 5) == [0, 0, 5, 5, 12]
    assert summed([5, 0, 7], 4) == [0, 0, 5, 5]
    assert summed([5], 4) == [0, 0, 5, 5]


def test_admitted_calls_are_traffic_of_their_limiter() -> None:
    small = with_calls()
    layout = plan(small, "fair", 1)
    rates = {"f1": 125_000, "f2": 250_000}
    seen = observation(small, layout, rates)
    steps = [43_750] * 80
    report = {"asked": [2 * size for size in steps], "admitted": steps, "callers": [500_000] * 7}
    run = record(small, "fair", 1, layout, replace(seen, calls=report))
    assert run["share"] == pytest.approx({"l1": 0.1, "l2": 0.2, "calls": 0.7}, rel=1e-3)
    assert run["aggregate_bps"] == pytest.approx(10e6, rel=1e-3)
    assert run["calls"]["callers_bps"] == [1e6] * 7
    assert run["series"]["calls"][40][1:3] == pytest.approx((7e6, 14e6), rel=1e-3)
    with pytest.raises(MeasurementError, match="no report of the callers"):
        record(small, "fair", 1, layout, seen)


def test_both_daemons_have_the_same_limit_with_another_target() -> None:
    mixed = load(find("mixed"))
    layout = plan(mixed, "fair", 1)
    documents = [daemon_document(mixed, "fair", layout, it, "auto") for it in mixed.limiters]
    limits = [config.from_document(it, "f").limits[0] for it in documents]
    assert [isinstance(it.match, RequestMatch) for it in limits] == [False, True]
    first, second = (it.policy for it in limits)
    assert replace(second, excess=first.excess, shared=first.shared) == first


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"calls": {**CALLS, "limiter": "l1"}}, "calls.limiter: must be a limiter without other"),
        ({"limiters": ["l1", "l2"]}, "calls.limiter: must be a limiter without other traffic"),
        ({"allocators": ["ctb"]}, "calls: ctb has one limiter, and packets need another"),
        ({"detail": "fleet"}, 'calls: needs detail = "limiters"'),
        ({"calls": {**CALLS, "count": 101}}, "calls.count: must be at most 100"),
    ],
)
def test_each_mistake_is_named(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_calls(**changes)
    assert any(problem in line for line in caught.value.problems), caught.value.problems


def test_the_simulator_has_no_callers() -> None:
    with pytest.raises(ConfigError, match="calls: only the testbed has them"):
        refuse(with_calls())
