"""A figure end to end: its runs, two at a time, and its report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from testbed.harness.figure import Figure
from testbed.harness.runner import SUMMARY
from testbed.harness.series import Series
from testbed.reproduce import __main__ as command
from testbed.reproduce import fig3
from testbed.reproduce.baseline import BASELINE

SHORT = {"seconds": 3, "warmup": "1s", "repeat": 1, "allocators": ["ctb", "fps"]}


def test_a_figure_from_its_runs_to_the_report_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = Series(BASELINE.name, "baseline", quick=SHORT)
    figure = Figure("fig3", "Figure 3", "as it is", [series], fig3.evaluate, fig3.FIGURE.draw)
    monkeypatch.setattr(command, "FIGURES", {"fig3": figure})
    call = ["fig3", "--quick", "--once", "--jobs", "2", "--out", str(tmp_path)]

    done = CliRunner().invoke(command.main, call)
    assert done.exit_code == 0, done.output
    run, fps = json.loads((tmp_path / "runs/baseline/result.json").read_text())["runs"]
    assert (run["allocator"], fps["allocator"]) == ("ctb", "fps")
    assert fps["daemons"].keys() == {"l1", "l2"}
    assert all(10e6 < daemon["resident_bytes"] < 200e6 for daemon in fps["daemons"].values())
    summary = json.loads((tmp_path / "fig3" / SUMMARY).read_text())
    (held,) = [check for check in summary["checks"] if check["statement"].startswith("CTB")]
    assert held["value"] == pytest.approx(run["aggregate_bps"] / 10e6)
    assert held["verdict"] in {"ok", "failed"}
    assert "](plots/fig3.png)" in (tmp_path / "reproduction.md").read_text()
    assert (tmp_path / "plots/fig3.png").stat().st_size > 10_000

    again = CliRunner().invoke(command.main, [*call, "--only-report"])
    assert again.exit_code == 0, again.output
