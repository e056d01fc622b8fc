"""A series of runs: attempts, the result file, the table."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.attempts import ATTEMPTS
from testbed.errors import HostError, MeasurementError
from testbed.harness import suite
from testbed.harness.progress import Progress
from testbed.link import DelayLineLinks
from testbed.record import record
from testbed.run import RunOptions
from testbed.topology import plan
from tests.testbed_factories import experiment, observation

OPTIONS = RunOptions("auto", DelayLineLinks)
SMALL = experiment(repeat=2)


def a_run(allocator: str, repetition: int) -> dict[str, Any]:
    layout = plan(SMALL, allocator, 1)
    seen = observation(SMALL, layout, {"f1": 375_000, "f2": 875_000})
    return record(SMALL, allocator, repetition, layout, seen)


class Runs:
    """Stands in for `run_once`; `outcomes` says which attempts fail, and how."""

    def __init__(self, outcomes: list[Exception | None]) -> None:
        self.outcomes = iter(outcomes)
        self.attempts: list[tuple[str, int]] = []

    async def __call__(
        self, experiment: object, allocator: str, repetition: int, *others: object
    ) -> dict[str, Any]:
        self.attempts.append((allocator, repetition))
        outcome = next(self.outcomes, None)
        if outcome is not None:
            raise outcome
        return a_run(allocator, repetition)


def use(monkeypatch: pytest.MonkeyPatch, *outcomes: Exception | None) -> Runs:
    runs = Runs(list(outcomes))
    monkeypatch.setattr(suite, "run_once", runs)
    return runs


async def run_suite(out: Path) -> tuple[dict[str, Any], str]:
    said = io.StringIO()
    return await suite.run_suite(SMALL, OPTIONS, out, Progress(said)), said.getvalue()


async def test_allocators_take_turns_as_often_as_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs = use(monkeypatch)
    result, _ = await run_suite(tmp_path)
    assert runs.attempts == [("ctb", 1), ("fps", 1), ("ctb", 2), ("fps", 2)]
    assert [(run["allocator"], run["repetition"]) for run in result["runs"]] == runs.attempts
    assert suite.failed(result) == []


def test_a_disturbance_is_named() -> None:
    layout = plan(SMALL, "ctb", 1)
    seen = observation(SMALL, layout, {"f1": 375_000, "f2": 875_000})
    disturbed = record(SMALL, "ctb", 1, layout, replace(seen, disturbances=("late",)))
    (remark,) = suite.disturbances_of({"runs": [disturbed, a_run("fps", 1)]})
    assert remark.startswith("The host disturbed a run of ctb")
    assert remark.endswith("late")


async def test_the_result_file_describes_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch)
    result, _ = await run_suite(tmp_path / "new")
    written = json.loads((tmp_path / "new" / "result.json").read_text())
    assert written == json.loads(json.dumps(result))
    assert written["schema"] == 1
    assert written["experiment"] == "small"
    assert written["definition"] == SMALL.definition
    assert written["limit_bps"] == 10_000_000
    assert {"commit", "kernel", "seed", "versions", "cpus", "started_at"} <= set(written)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["result.json"]


async def test_a_run_that_went_wrong_is_done_again_and_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs = use(monkeypatch, None, None, MeasurementError("the delay line stalled"))
    result, said = await run_suite(tmp_path)
    assert runs.attempts == [("ctb", 1), ("fps", 1), ("ctb", 2), ("ctb", 2), ("fps", 2)]
    assert len(result["runs"]) == 4
    assert result["discarded"] == [
        {"allocator": "ctb", "repetition": 2, "reason": "the delay line stalled"}
    ]
    assert "ctb, repetition 2 does not count: the delay line stalled" in said
    assert suite.failed(result) == []


async def test_a_run_that_never_counts_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch, *[MeasurementError("late")] * ATTEMPTS)
    result, _ = await run_suite(tmp_path)
    assert [(run["allocator"], run["repetition"]) for run in result["runs"]] == [
        ("fps", 1),
        ("ctb", 2),
        ("fps", 2),
    ]
    assert suite.failed(result) == ["ctb, repetition 1"]


async def test_what_the_host_cannot_do_ends_everything(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch, None, HostError("no such file"))
    with pytest.raises(HostError):
        await run_suite(tmp_path)
    assert len(json.loads((tmp_path / "result.json").read_text())["runs"]) == 1


async def test_the_table_has_a_row_for_each_allocator(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch)
    result, _ = await run_suite(tmp_path)
    header, ctb, fps = suite.table_of(result).splitlines()
    assert header.split() == [
        "allocator", "runs", "rate/limit", "l1", "l2", "Jain", "1s<=1.10", "gossip", "B/s",
    ]  # fmt: skip
    assert fps.split()[:4] == ["fps", "2", "1.000", "(1.000..1.000)"]
    assert ctb.split()[0] == "ctb"
    assert len(header) == len(ctb) == len(fps)


def an_event(kind: str, *times: float | None, **changes: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "limit_bps": 10e6,
        "highest_1s_bps": 9e6,
        "in_force_s": None,
        "flows": [{"t80_s": time, "lasting_s": time} for time in times],
        **changes,
    }


def test_the_table_of_events_has_a_row_for_each_kind_and_allocator() -> None:
    def run(allocator: str, *events: dict[str, Any]) -> dict[str, Any]:
        return {"allocator": allocator, "events": list(events)}

    runs = [
        run("ctb", an_event("join", 0.5)),
        run("fps", an_event("join", 0.5, 0.9, None), an_event("limit", highest_1s_bps=11.5e6)),
        run("fps", an_event("join", 0.7, in_force_s=0.25), an_event("limit")),
    ]
    header, *rows = suite.event_table_of({"runs": runs}).splitlines()
    assert header.split()[:4] == ["event", "allocator", "events", "flows"]
    assert [row.split()[:4] for row in rows] == [
        ["join", "ctb", "1", "1"],
        ["join", "fps", "2", "4"],
        ["limit", "ctb", "0", "0"],
        ["limit", "fps", "2", "0"],
    ]
    # What never came is longer than anything that did.
    assert rows[1].count("0.80 (0.50..never)") == 2
    assert "0.25 (0.25..0.25)" in rows[1]
    assert rows[1].endswith("0.90")
    assert rows[3].endswith("1.15")


def test_without_events_there_is_no_table_of_them() -> None:
    assert suite.event_table_of({"runs": [{"allocator": "fps", "events": []}]}) == ""
