"""SRTM's figures: their checks hold for the papers' values, and fail for others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drld.messages.penalty import mean_delay, tail_delay
from testbed.harness.figure import Figure
from testbed.harness.results import Results
from testbed.messages.case import Case
from testbed.messages.real.case import RealCase
from testbed.messages.run import carry_out
from testbed.messages.series import MessageSeries, RealMessageSeries
from testbed.reproduce.registry import FIGURES, GROUPS
from testbed.reproduce.srtm.penalty import RHO
from tests.reproduce_factories import draws, failed

Change = Callable[[str, str, dict[str, Any]], None]
"""Changes a record, by series and number of brokers."""
PAPER_MS = {"1": 60.0, "2": 0.8, "3": 1.0, "4": 1.3, "5": 1.7, "6": 2.2}
"""99th percentiles of figure 6b, read from its shape."""


def a_record(
    series: MessageSeries | RealMessageSeries, brokers: str, number: int
) -> dict[str, Any]:
    case, parts = series.case, int(brokers)
    slow = case.dilate if isinstance(case, RealCase) else 1
    rate, burst = float(case.rate) / slow, 26 * case.batch
    delays = {
        "mean": 1e3 * mean_delay(rate / parts, 26 / parts, RHO),
        "p50": 0.0,
        "p95": 0.0,
        "p99": 1e3 * tail_delay(rate, burst, 1 / parts),
    }
    latency = {**delays, "p99": PAPER_MS[brokers] if case.publishers == 6000 else delays["p99"]}
    real = {"access_p99_ms": delays["p99"], "late_ms": 0.1} if slow > 1 else {}
    return {
        "allocator": brokers, "repetition": number, "datapath": "virtual time", "burst": burst,
        "messages": 1000, "waited": 10, "access": delays, "latency": latency, **real,
    }  # fmt: skip


def results(figure: Figure, change: Change = lambda *_: None) -> Results:
    found = {}
    for series in figure.all_series:
        assert isinstance(series, MessageSeries | RealMessageSeries)
        runs = []
        for brokers, number in series.plan(False).runs:
            record = a_record(series, brokers, number)
            change(series.name, brokers, record)
            runs.append(record)
        found[series.name] = {"definition": {}, "runs": runs, "discarded": []}
    return Results(found)


@pytest.mark.parametrize("name", GROUPS["srtm"])
def test_published_figures_hold_and_are_drawn(name: str, tmp_path: Path) -> None:
    found = results(FIGURES[name])
    assert failed(FIGURES[name], found) == []
    draws(FIGURES[name], found, tmp_path)


@pytest.mark.parametrize(
    ("name", "place", "value", "statements"),
    [
        ("srtm-penalty", ("srtm/penalty", "1", "access"), 0.1, 1),
        ("srtm-penalty", ("srtm/penalty", "3", "access"), 2.4, 2),
        ("srtm-penalty", ("srtm/penalty", "3", "access"), 4.9, 1),
        ("srtm-penalty", ("srtm/penalty", "6", "latency"), 8.0, 1),
        ("srtm-tradeoff", ("srtm/tradeoff", "1", "latency"), 1.0, 1),
        ("srtm-tradeoff", ("srtm/tradeoff", "2", "latency"), 2.1, 3),
        ("srtm-baselines", ("srtm/baselines-4000", "1", "latency"), 1.1, 1),
        ("srtm-baselines", ("srtm/baselines-10000", "6", "latency"), 0.9, 1),
        ("srtm-baselines", ("srtm/baselines-2000", "6", "latency"), 3.0, 1),
        ("srtm-bursts", ("srtm/batches", "6", "access"), 20.0, 1),
        ("srtm-real", ("srtm/real-nats", "6", "latency"), 80.0, 2),
        ("srtm-real", ("srtm/real-mqtt", "1", "latency"), 15.0, 8),
        ("srtm-real", ("srtm/real-virtual", "3", "access"), 2.0, 2),
    ],
)
def test_other_values_fail_their_checks(
    name: str, place: tuple[str, str, str], value: float, statements: int
) -> None:
    def change(series: str, brokers: str, record: dict[str, Any]) -> None:
        if (series, brokers) == place[:2]:
            of = place[2]
            record[of] = {**record[of], "p99": value}

    assert len(failed(FIGURES[name], results(FIGURES[name], change))) == statements


def test_a_run_gives_the_same_record_again_and_splitting_makes_messages_wait() -> None:
    case = Case(100, brokers=("1", "4"), seconds=5.0, warm_s=1.0, burst=26)
    series = MessageSeries("tried", case)
    definition = series.header(False, {})["definition"]
    assert definition["allocators"] == case.brokers
    one, four = (carry_out(definition, brokers, 1) for brokers in case.brokers)
    assert one == carry_out(definition, "1", 1)
    assert one["messages"] == four["messages"] == pytest.approx(5000, rel=0.1)
    assert one["waited"] <= four["waited"] / 2
    assert one["access"]["mean"] < four["access"]["mean"] <= four["latency"]["mean"]
