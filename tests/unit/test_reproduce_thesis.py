"""The thesis' figures: their checks hold for the published values, and fail for others."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.harness.figure import Figure
from testbed.harness.results import Results
from testbed.reproduce.registry import FIGURES, GROUPS
from testbed.requests.series import RealSeries, RequestSeries
from tests.reproduce_factories import draws, failed

Change = Callable[[str, str, dict[str, Any]], None]
"""Changes a record, by series and bucket."""
WORSE = ("counter", "queue", "queue-linf", "counter-literal", "ledger")
OWNERLESS = ("queue", "queue-linf", "queue-frequency", "queue-both", "queue-prompt", "queue-safe")
"""Buckets whose elements do not name their origin."""
PRECISION = {
    ("extreme", False): 0.964, ("substantial", False): 0.971, ("barely", False): 0.15,
    ("extreme", True): 0.985, ("substantial", True): 0.994, ("barely", True): 0.6,
}  # fmt: skip
QUEUE = {"extreme": 0.997, "substantial": 0.986, "barely": 0.8}
BYTES = {"counter": 100, "queue": 150, "queue-linf": 140, "queue-frequency": 400,
         "queue-both": 390, "ledger": 90, "ledger-slack": 20}  # fmt: skip
MEMORY = {"queue-linf": 80, "queue-frequency": 150, "queue-both": 110}
D = {300: 7.3, 450: 6.8, 900: 0.0}


def a_record(series: RequestSeries | RealSeries, bucket: str, number: int) -> dict[str, Any]:
    """A record as if the thesis' figures were exactly so."""
    case = series.case
    part = 1.0
    if case.data in QUEUE:
        queue = QUEUE[case.data]
        uniform = case.duty == 0
        part = 1.0 if bucket == "ledger-slack" else (
            PRECISION[case.data, uniform] if bucket in WORSE else queue
        )  # fmt: skip
    elif case.data == "ten-users":
        part = 1.0 if bucket == "ledger-slack" or case.nodes == 1 else (
            0.957 if bucket in WORSE else 0.985
        )  # fmt: skip
    central = 8 if case.data == "just-above" else 0 if case.data == "not-limited" else 1000
    rejected = central * part
    if case.data == "just-above" and bucket == "queue":
        rejected = D.get(case.interval_ms, 7.5 - case.delay_ms / 1000)
    elif case.data == "just-above":
        rejected = 8.0
    if case.data == "substantial" and case.nodes == 10:
        rejected = central
    quiet = case.data in ("not-limited", "many-users") and bucket == "queue"
    factor = 1.0
    if case.data == "high-rate":
        factor = {"queue": 9.5, "queue-prompt": 9.5, "counter": 1.2}.get(bucket, 1.0)
    together = 1 - math.exp(-case.load / 1000) if case.data == "one-millisecond" else 1.0
    skewed = case.skewed_s if bucket == "queue" else 0
    return {
        "allocator": bucket, "repetition": number, "datapath": "virtual time", "requests": 2000,
        "rejected": rejected, "central": central, "area": rejected, "central_area": central,
        "excess": 199.0 if bucket == "counter-literal" else float(
            (bucket, case.data) == ("counter", "steady")
        ), "shortfall": 0.0,
        "admitted": 100 * factor, "central_admitted": 100,
        "late_admitted": 100 * factor, "late_central": 100,
        "unknown": None if bucket in OWNERLESS else 200, "unknown_s": 1.0,
        "level": 100 * (together / (case.load / 1000) if bucket == "queue" and together < 1 else 1),
        "apart": 0.0, "left": 0, "payload": 50, "term_bytes": 50, "step_s": 1.0, "seen": [1, 1],
        "caught_up_s": None if not case.copies else 0.1,
        "took_s": 10.0, "median_ms": 1.0, "longest_ms": 2.0,
        "bytes": BYTES.get(bucket, 100) * (0.2 if quiet and case.data == "not-limited" else 0.7),
        "messages": 10, "converged_s": 9.0, "after_s": 1.0, "memory_peak": 1,
        "memory_area": 13 if quiet else MEMORY.get(bucket, 100), "erlang_area": 100,
        "local_area": 100, "resident": 1, "late_tokens": 0, "users": 1,
        "decisions": f"{bucket} {skewed}",
        "curve": [[0, 0], [rejected, central]], "sent": [1, 2], "memory": [1, 2],
    }  # fmt: skip


def results(figure: Figure, change: Change = lambda *_: None) -> Results:
    found = {}
    for series in figure.all_series:
        assert isinstance(series, RequestSeries | RealSeries)
        runs = []
        for bucket, number in series.plan(False).runs:
            record = a_record(series, bucket, number)
            change(series.name, bucket, record)
            runs.append(record)
        found[series.name] = {
            "definition": {"capacity": series.case.capacity}, "runs": runs, "discarded": [],
        }  # fmt: skip
    return Results(found)


@pytest.fixture(params=GROUPS["thesis"])
def figure(request: pytest.FixtureRequest) -> Figure:
    return FIGURES[request.param]


def test_published_figures_hold_and_are_drawn(figure: Figure, tmp_path: Path) -> None:
    found = results(figure)
    assert failed(figure, found) == []
    draws(figure, found, tmp_path)


@pytest.mark.parametrize(
    ("name", "key", "bucket", "value", "statements"),
    [
        ("thesis-a", "excess", "ledger", 1.0, 1),
        ("thesis-a", "area", "queue-frequency", 900, 1),
        ("thesis-a", "memory_area", "queue-both", 149, 1),
        ("thesis-b", "rejected", "queue-both", 300, 3),
        ("thesis-b", "rejected", "ledger-slack", 998, 3),
        ("thesis-b", "bytes", "ledger-slack", 200, 5),
        ("thesis-c", "memory_area", "queue", 60, 1),
        ("thesis-d", "rejected", "queue", 4, 3),
        ("thesis-d", "rejected", "ledger", 5, 3),
        ("thesis-d", "excess", "ledger-slack", 1, 3),
        ("thesis-open", "late_admitted", "ledger-slack", 103, 1),
        ("thesis-open", "admitted", "queue-prompt", 800, 1),
        ("thesis-open", "level", "ledger-slack", 99, 3),
        ("thesis-open", "left", "ledger-slack", 1, 1),
        ("thesis-c", "left", "ledger-slack", 1, 1),
        ("thesis-faults", "decisions", "queue", "same", 1),
        ("thesis-faults", "unknown", "counter", -1, 9),
        ("thesis-faults", "apart", "ledger-slack", 2, 8),
        ("thesis-faults", "caught_up_s", "ledger-slack", 1.5, 1),
        ("thesis-overshoot", "unknown", "counter", -1, 25),
        ("thesis-overshoot", "excess", "ledger-slack", 190, 7),
        ("thesis-overshoot", "shortfall", "ledger-slack", 9, 16),
        ("thesis-real", "excess", "ledger-slack", 11, 2),
    ],
)
def test_other_values_fail_their_checks(
    name: str, key: str, bucket: str, value: float, statements: int
) -> None:
    def change(series: str, of: str, record: dict[str, Any]) -> None:
        if of == bucket:
            record[key] = value

    assert len(failed(FIGURES[name], results(FIGURES[name], change))) == statements


def test_one_decision_that_a_clock_changes_fails() -> None:
    def change(series: str, of: str, record: dict[str, Any]) -> None:
        if (series, of, record["repetition"]) == ("thesis/fault-1", "ledger-slack", 7):
            record["decisions"] = "other"

    figure = FIGURES["thesis-faults"]
    assert len(failed(figure, results(figure, change))) == 1
