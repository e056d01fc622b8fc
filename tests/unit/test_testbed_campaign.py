"""The one campaign loop: what becomes of each attempt, which runs are kept, what is written."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from testbed.attempts import ATTEMPTS
from testbed.crew import Child
from testbed.errors import HostError
from testbed.harness import worker
from testbed.harness.campaign import Campaign
from testbed.harness.figure import Figure
from testbed.harness.finding import Finding
from testbed.harness.ledger import PREVIOUS, failed
from testbed.harness.progress import Board
from testbed.harness.results import Results
from testbed.harness.runner import RUNS, Conclusions
from testbed.harness.schedule import Room, Task
from testbed.harness.series import Series, Setting

WANTED = {"allocators": ["ctb", "fps"], "repeat": 2, "seconds": 2, "warmup": "1s"}
ALL = [("ctb", 1), ("fps", 1), ("ctb", 2), ("fps", 2)]


def a_figure(name: str, *series: Series) -> Figure:
    def draw(_results: Results, directory: Path) -> list[Path]:
        (directory / f"{name}.png").touch()
        return [directory / f"{name}.png"]

    return Figure(name, name, "", list(series), lambda _: Finding([], ""), draw)


def a_series(name: str = "a", **changes: Any) -> Series:
    return Series(name, "baseline", full={**WANTED, **changes.pop("full", {})}, **changes)


class Answers:
    """Stands in for the workers; `bad` has the reasons for the runs that do not count."""

    def __init__(self, bad: Mapping[tuple[str, str, int, int], str] | None = None) -> None:
        self.bad = bad or {}
        self.begun: list[tuple[str, str, int]] = []
        self.tasks: list[Task] = []

    async def __call__(self, task: Task, _definition: object) -> dict[str, Any]:
        self.tasks.append(task)
        self.begun.append((task.series, task.allocator, task.repetition))
        # Those that begin later end earlier.
        await trio.sleep(1.0 - len(self.begun) / 100)
        key = (task.series, task.allocator, task.repetition, task.attempt)
        reason = self.bad.get(key)
        if reason is not None:
            return {worker.DISCARDED: reason}
        run = {"allocator": task.allocator, "repetition": task.repetition, "datapath": "kernel"}
        return {worker.RECORD: run}


async def carry_out(
    out: Path, series: list[Series], answers: Any, progressed: Any = lambda _: None, **choices: Any
) -> tuple[str, Campaign]:
    said = io.StringIO()
    room = Room(choices.pop("jobs", 2), 2)
    carried = Campaign(series, Setting(out / RUNS, room, **choices), Board(said), progressed)
    if answers is not None:
        carried._answer = answers  # type: ignore[method-assign]  # no process
    await carried.carry_out()
    return said.getvalue(), carried


def written(out: Path, series: str = "a") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / RUNS / series / "result.json").read_text())
    return found


def keys(result: Mapping[str, Any]) -> list[tuple[str, int]]:
    return [(run["allocator"], run["repetition"]) for run in result["runs"]]


async def failing(out: Path, series: Series, answers: Any, jobs: int = 2) -> HostError:
    """The error that a campaign ends with, without the groups that nurseries make."""
    try:
        await carry_out(out, [series], answers, jobs=jobs)
    except BaseException as raised:
        error: Any = raised
        while hasattr(error, "exceptions"):
            error = error.exceptions[0]
        assert isinstance(error, HostError)
        return error
    raise AssertionError("no error")


async def test_the_file_has_the_runs_in_their_order_however_they_end(
    tmp_path: Path, autojump_clock: object
) -> None:
    answers = Answers()
    said, _ = await carry_out(tmp_path, [a_series("a"), a_series("b")], answers, jobs=8)
    assert keys(written(tmp_path)) == keys(written(tmp_path, "b")) == ALL
    assert len(answers.begun) == 8
    assert "8 of 8 runs, about 0 s left" in said


async def test_the_result_file_describes_itself(tmp_path: Path, autojump_clock: object) -> None:
    series = a_series()
    await carry_out(tmp_path, [series], Answers())
    result = written(tmp_path)
    assert (result["schema"], result["experiment"], result["limit_bps"]) == (1, "baseline", 10**7)
    assert result["definition"] == json.loads(json.dumps(series.load(False).definition))
    assert {"commit", "kernel", "seed", "versions", "cpus", "started_at"} <= set(result)
    assert [path.name for path in (tmp_path / RUNS / "a").iterdir()] == ["result.json"]


async def test_a_finished_figure_is_concluded_without_the_right_to_raise_a_priority(
    tmp_path: Path, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process without root can lower its priority, and not raise it again."""
    lower = os.setpriority

    def unprivileged(which: int, who: int, priority: int) -> None:
        if priority < os.getpriority(which, who):
            raise PermissionError
        lower(which, who, priority)

    monkeypatch.setattr(os, "setpriority", unprivileged)
    before = os.getpriority(os.PRIO_PROCESS, 0)
    figures = [a_figure("first", a_series("a")), a_figure("long", a_series("b", quick=None)),
               a_figure("both", a_series("a"), a_series("c"))]  # fmt: skip
    conclusions = Conclusions(figures, tmp_path, quick=True)
    concluded = []

    def progressed(unfinished: set[str]) -> None:
        conclusions(unfinished)
        concluded.append({file.parent.name for file in tmp_path.glob("*/summary.json")})

    await carry_out(
        tmp_path, [a_series("a"), a_series("c")], Answers(), progressed, quick=True, jobs=1
    )
    assert concluded[0] == set()
    assert {"first"} in concluded
    assert concluded[-1] == {"first", "both"}
    assert (tmp_path / "both/both.png").exists()
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


async def test_an_interrupted_series_continues(tmp_path: Path, autojump_clock: object) -> None:
    never = Answers({("a", "fps", 1, n): "late" for n in range(1, 9)})
    await carry_out(tmp_path, [a_series()], never)
    assert keys(written(tmp_path)) == [("ctb", 1), ("ctb", 2), ("fps", 2)]
    assert failed(written(tmp_path)) == ["fps, repetition 1"]
    answers = Answers()
    said, _ = await carry_out(tmp_path, [a_series()], answers)
    assert answers.begun == [("a", "fps", 1)]
    assert keys(written(tmp_path)) == ALL
    assert failed(written(tmp_path)) == []
    assert "a: 3 runs exist already" in said
    # More runs and other allocators change none of the runs that exist.
    more = Answers()
    wanted = {"allocators": ["ctb", "gtb"], "repeat": 3}
    await carry_out(tmp_path, [a_series(full=wanted)], more)
    assert sorted(key[1:] for key in more.begun) == [
        ("ctb", 3), ("gtb", 1), ("gtb", 2), ("gtb", 3),
    ]  # fmt: skip


async def test_without_resuming_all_runs_are_repeated(
    tmp_path: Path, autojump_clock: object
) -> None:
    await carry_out(tmp_path, [a_series()], Answers())
    answers = Answers()
    await carry_out(tmp_path, [a_series()], answers, resume=False)
    assert len(answers.begun) == len(ALL)


async def test_runs_of_another_definition_are_kept_beside(
    tmp_path: Path, autojump_clock: object
) -> None:
    await carry_out(tmp_path, [a_series()], Answers())
    first = written(tmp_path)
    answers = Answers()
    said, _ = await carry_out(tmp_path, [a_series(full={"seconds": 6})], answers)
    assert len(answers.begun) == len(ALL)
    assert "all runs are repeated, because these changed: its definition (seconds)" in said
    assert json.loads((tmp_path / RUNS / "a" / PREVIOUS).read_text()) == first


async def test_a_run_that_does_not_count_is_done_again_and_the_third_time_alone(
    tmp_path: Path, autojump_clock: object
) -> None:
    answers = Answers({("a", "ctb", 1, 1): "late", ("a", "ctb", 1, 2): "late again"})
    said, _ = await carry_out(tmp_path, [a_series()], answers)
    assert keys(written(tmp_path)) == ALL
    assert [item["reason"] for item in written(tmp_path)["discarded"]] == [
        "late", "late again",
    ]  # fmt: skip
    assert "a: an attempt at ctb, run 1 does not count: late again" in said
    attempts = [(task.attempt, task.alone) for task in answers.tasks if task.allocator == "ctb"
                and task.repetition == 1]  # fmt: skip
    assert attempts == [(1, False), (2, False), (3, True)]
    assert answers.tasks[-1].attempt == 3


async def test_a_run_that_never_counts_is_missing(tmp_path: Path, autojump_clock: object) -> None:
    answers = Answers({("a", "ctb", 1, attempt): "late" for attempt in range(1, 9)})
    await carry_out(tmp_path, [a_series()], answers, jobs=1)
    assert answers.begun[:3] == [("a", "ctb", 1), ("a", "ctb", 1), ("a", "fps", 1)]
    assert answers.begun[-3:] == [("a", "ctb", 1)] * 3
    assert len(answers.begun) == len(ALL) - 1 + ATTEMPTS
    assert keys(written(tmp_path)) == ALL[1:]
    assert failed(written(tmp_path)) == ["ctb, repetition 1"]


async def test_an_error_of_the_host_ends_the_campaign(
    tmp_path: Path, autojump_clock: object
) -> None:
    async def impossible(task: Task, _definition: object) -> dict[str, Any]:
        if task.allocator == "ctb":
            await trio.sleep_forever()
        return {worker.IMPOSSIBLE: "no namespaces here"}

    error = await failing(tmp_path, a_series(), impossible)
    assert "a fps 1: no namespaces here" in str(error)


async def test_runs_of_code_that_has_changed_are_not_mixed(
    tmp_path: Path, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Changing(Answers):
        async def __call__(self, task: Task, definition: object) -> dict[str, Any]:
            if task.repetition == 2:
                monkeypatch.setattr("testbed.provenance.code", lambda **_: "another")
            return await super().__call__(task, definition)

    error = await failing(tmp_path, a_series(), Changing(), jobs=1)
    assert "the code changed" in str(error)
    assert keys(written(tmp_path)) == ALL[:2]


async def test_a_simulated_run_is_a_process_that_returns_its_record(tmp_path: Path) -> None:
    simulated = a_series("sim", simulated=True, settings=("gossip.loss=0.1",))
    _, carried = await carry_out(tmp_path, [simulated], None)
    result = written(tmp_path, "sim")
    assert keys(result) == ALL
    assert {run["datapath"] for run in result["runs"]} == {"simulated"}
    assert result["definition"]["gossip"]["loss"] == 0.1
    assert not carried._pool.running
    assert not carried._ledgers


async def test_an_experiment_that_cannot_be_simulated_is_refused(tmp_path: Path) -> None:
    wrong = a_series("sim", simulated=True, settings=("limit.on_failure=open",))
    error = await failing(tmp_path, wrong, None)
    assert "on_failure" in str(error)


async def test_a_worker_that_dies_is_a_run_that_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dying(Child):
        async def send(self, message: object) -> None:
            self.kill()
            await super().send(message)

    monkeypatch.setattr("testbed.crew.Child", Dying)
    await carry_out(tmp_path, [a_series("sim", simulated=True)], None)
    result = written(tmp_path, "sim")
    assert result["runs"] == []
    assert len(result["discarded"]) == 8


async def test_no_worker_outlives_an_interrupted_campaign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Child] = []

    class Watched(Child):
        async def send(self, message: object) -> None:
            await super().send(message)
            started.append(self)
            if len(started) == 2:
                scope.cancel()

    monkeypatch.setattr("testbed.crew.Child", Watched)
    endless = Series("sim", "baseline", full={**WANTED, "seconds": 3000}, simulated=True)
    with trio.CancelScope() as scope:
        await carry_out(tmp_path, [endless], None)
    assert len(started) == 2
    assert all(child.process.poll() is not None for child in started)
    assert written(tmp_path, "sim")["runs"] == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def screen(text: str) -> list[str]:
    """The screen of a terminal that knows only lines and going back."""
    lines: list[str] = []
    for part in re.split(r"(\x1b\[\d+F\x1b\[J)", text):
        if back := re.fullmatch(r"\x1b\[(\d+)F\x1b\[J", part):
            del lines[-int(back[1]) :]
        else:
            lines += part.splitlines()
    return lines


def test_the_lines_of_a_terminal_change_in_place_and_notes_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "21")
    monkeypatch.setenv("LINES", "5")
    stream = Terminal()
    lines = Board(stream)
    lines.show(["one", "two " * 10])
    lines.note("noted")
    assert screen(stream.getvalue()) == ["noted", "one", "two two two two two "]
    lines.show(["three"])
    assert screen(stream.getvalue()) == ["noted", "three"]
    lines.end()
    assert screen(stream.getvalue()) == ["noted"]


def test_output_without_a_terminal_has_only_lasting_lines() -> None:
    stream = io.StringIO()
    lines = Board(stream)
    lines.show(["one"])
    lines.note("noted")
    lines.end()
    assert stream.getvalue() == "noted\n"
