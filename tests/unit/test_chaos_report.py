"""The report of the chaos suite: promises, disturbances of the host, the exit status."""

from __future__ import annotations

import json
import math
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
import trio
from click.testing import CliRunner

from testbed.attempts import ATTEMPTS
from testbed.chaos import __main__ as command
from testbed.chaos import report, stage
from testbed.chaos.fault import KERNEL
from testbed.chaos.registry import FAULTS
from testbed.chaos.scene import Scene
from testbed.chaos.stage import Job
from testbed.harness.finding import Check


def result(
    *checks: Check,
    left: list[str] | None = None,
    error: str | None = None,
    interrupted: bool = False,
) -> Any:
    record = {
        "fault": "kill-one",
        "datapath": "kernel",
        "checks": [check.record for check in checks],
        "discarded": [],
    }
    return {
        "taken": "2026-01-01",
        "commit": "0123456789abcdef",
        "quick": True,
        "seed": 1,
        "fabric": "mesh",
        "seconds": 9.0,
        "host": {"model": "m", "processors": 2, "kernel": "6.1", "python": "3.11"},
        "stages": [
            {
                "faults": ["kill-one"],
                "datapath": "kernel",
                "records": [] if interrupted else [record],
                "left": left or [],
                "error": error,
            }
        ],
    }


KEPT = Check("recovery", 1.25, "s", most=6.0)
BROKEN = Check("beyond limit x time", 200, "kB", most=150)


@pytest.mark.parametrize(
    ("found", "cell"),
    [
        (result(KEPT), "1.25 s (at most 6)"),
        (result(KEPT, Check("odd", 3, most=3)), "odd 3 (at most 3)"),
        (result(KEPT, Check("traces in logs", 0, most=0)), "traces in logs 0 (at most 0)."),
    ],
)
def test_kept_promises_are_counted(found: Any, cell: str) -> None:
    assert report.broken(found) == []
    assert "all hold" in report.text(found)
    assert cell in report.section(found, "Tree")


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (result(KEPT, BROKEN), "beyond limit x time: 200 kB, promised at most 150"),
        (result(KEPT, left=["l1: a rule"]), "left behind: l1: a rule"),
        (result(KEPT, error="no such host"), "no such host"),
        (result(Check("recovery", None, "s", most=6.0)), "recovery: never"),
        (result(Check("recovery", math.nan, "s", most=6.0)), "recovery: nan"),
        (result(Check("in use", math.nan, least=0.9)), "in use: nan"),
        (result(Check("traces in logs", 1, most=0)), "traces in logs: 1, promised at most 0"),
        (result(KEPT, interrupted=True), "interrupted"),
    ],
)
def test_promises_that_do_not_hold(bad: Any, words: str) -> None:
    (line,) = report.broken(bad)
    assert words in line
    assert f"BROKEN: {line}" in report.text(bad)
    section = report.section(bad, "Tree")
    assert f"- broken: {line}" in section
    failed = [check for stage in bad["stages"] for record in stage["records"]
              for check in record["checks"] if check["verdict"] != "ok"]  # fmt: skip
    assert section.count("BROKEN |") == len(failed)


def test_usual_promises_are_printed_once_at_their_worst() -> None:
    usual = [Check("memory of a daemon grew by", size, "kB", most=3_000) for size in (5, 9)]
    good = result(KEPT, usual[0])
    good["stages"] += result(KEPT, usual[1])["stages"]
    assert report.section(good, "Tree").count("memory of a daemon grew by") == 1
    assert "memory of a daemon grew by 9 kB (at most 3,000)" in report.section(good, "Tree")


@pytest.mark.parametrize("name", ["tree", "mesh", "soak"])
def test_there_is_a_place_for_figures(name: str) -> None:
    section = report.section(result(KEPT), "Title")
    assert f"<!-- {name} -->\n\n{section.strip()}" in command._PAGE.updated("", {name: section})
    assert "commit 0123456, seed 1, mesh: " in section


class Attempts:
    """Measurements of a fault, one after another: how late the host was, and what was seen."""

    def __init__(self, *attempts: tuple[float, Check]) -> None:
        self._attempts = iter(attempts)
        self.rng = Random()
        self.seeds: set[float] = set()

    async def settled(self) -> None:
        self.seeds.add(self.rng.random())

    async def one(self, *_: object) -> dict[str, Any]:
        late_s, check = next(self._attempts)
        record: dict[str, Any] = result(check)["stages"][0]["records"][0]
        return {**record, "late_s": late_s}


@pytest.mark.parametrize(
    ("attempts", "discarded", "holds"),
    [
        ([(0.0, True)], [], True),
        ([(0.3, True)], [], True),
        ([(0.0, False)], [], False),
        ([(0.3, False), (0.0, True)], [0.3], True),
        ([(0.3, False), (0.0, False)], [0.3], False),
        ([(0.3, False), (0.2, False), (0.1, True)], [0.3, 0.2], True),
        ([(0.3, False)] * ATTEMPTS, [0.3] * (ATTEMPTS - 1), False),
    ],
)
async def test_a_run_that_the_host_disturbed_is_repeated(
    attempts: list[tuple[float, bool]],
    discarded: list[float],
    holds: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fleet = Attempts(*((late_s, KEPT if kept else BROKEN) for late_s, kept in attempts))
    monkeypatch.setattr(stage, "_one", fleet.one)
    job = Job(["kill-one"], KERNEL, "auto", 1, True, 0, fabric="tree")
    record = await stage._measured(FAULTS["kill-one"], cast(Scene, fleet), job)
    assert [attempt["late_s"] for attempt in record["discarded"]] == discarded
    assert (report.broken_of(record) == []) is holds
    assert len(fleet.seeds) == 1
    assert capsys.readouterr().out.count("before") == len(attempts)


def test_discarded_runs_are_reported_and_break_no_promise() -> None:
    good = result(KEPT)
    (record,) = good["stages"][0]["records"]
    record["discarded"] = [{"late_s": 0.25, "broken": ["in use at least: 0.8"]}]
    line = "discarded, as the host stood still for 0.25 s in a second: in use at least: 0.8"
    assert report.broken(good) == []
    assert line in report.text(good)
    assert f"- {line}" in report.section(good, "Tree")


@pytest.mark.parametrize(("check", "status"), [(KEPT, 0), (BROKEN, 1)])
def test_the_exit_status_says_whether_promises_are_kept(
    check: Check, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Done:
        def __init__(self, *_: object) -> None:
            self.stages = result(check)["stages"]

        async def carry_out(self) -> None:
            pass

    monkeypatch.setattr(command, "Campaign", Done)
    monkeypatch.setattr(command, "probed", lambda backend: backend)
    monkeypatch.setattr(command, "run_to_end", trio.run)
    done = CliRunner().invoke(command.main, ["kill-one", "--out", str(tmp_path)])
    assert done.exit_code == status, done.output
    assert ("BROKEN: " in done.output) == bool(status)
    assert json.loads((tmp_path / "chaos.json").read_text())["seed"] == 1


@pytest.mark.parametrize("other", [["kill-one"], ["--quick"], ["--datapath", "kernel"]])
def test_the_page_keeps_its_tables_but_for_those_of_a_full_run(
    other: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("something was done")

    monkeypatch.setattr(command, "Campaign", never)
    done = CliRunner().invoke(command.main, ["--docs", *other, "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert "--docs is for all faults or soak" in done.output
