"""A figure end to end: its runs, its report, and that a second time nothing is measured again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from testbed import netns, suite
from testbed.reproduce import __main__ as command
from testbed.reproduce import fig3
from testbed.reproduce.baseline import BASELINE
from testbed.reproduce.figure import Figure, Series
from testbed.reproduce.runner import REPORT, SUMMARY

pytestmark = pytest.mark.kernel

SHORT = {"seconds": 3, "warmup": "1s", "repeat": 1, "allocators": ["ctb"]}


def test_a_figure_from_its_runs_to_the_report_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = Series(BASELINE.name, "baseline", quick=SHORT)
    figure = Figure("fig3", "Figure 3", "as it is", [series], fig3.evaluate, fig3.draw)
    monkeypatch.setattr(command, "FIGURES", {"fig3": figure})
    call = ["fig3", "--quick", "--out", str(tmp_path)]

    done = CliRunner().invoke(command.main, call)
    assert done.exit_code == 0, done.output
    assert netns.own() == []
    (run,) = json.loads((tmp_path / "runs/baseline/result.json").read_text())["runs"]
    summary = json.loads((tmp_path / "fig3" / SUMMARY).read_text())
    (held,) = [check for check in summary["checks"] if check["statement"].startswith("CTB")]
    assert held["value"] == pytest.approx(run["aggregate_bps"] / 10e6)
    assert held["verdict"] in {"ok", "failed"}
    assert "data:image/png;base64," in (tmp_path / REPORT).read_text()

    async def none_is_missing(*_: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(suite, "run_once", none_is_missing)
    again = CliRunner().invoke(command.main, call)
    assert again.exit_code == 0, again.output
