"""Whole runs of the simulator."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from testbed.sim.__main__ import main
from testbed.sim.run import simulate

from ..testbed_factories import experiment


def test_the_same_seed_gives_the_same_record_to_the_byte() -> None:
    records = [json.dumps(simulate(experiment(), "fps")) for _ in range(2)]
    assert records[0] == records[1]
    assert json.dumps(simulate(experiment(), "fps", 2)) != records[0]
    assert json.dumps(simulate(experiment(seed=2), "fps")) != records[0]


def test_a_run_from_the_command_line(tmp_path: Path) -> None:
    arguments = ["run", "baseline", "--seconds", "3", "--set", "warmup=1s", "--repeat", "1"]
    asked = ["--allocator", "ctb", "--allocator", "fps", "--out", str(tmp_path), "--no-plots"]
    outcome = CliRunner().invoke(main, arguments + asked)
    assert outcome.exit_code == 0, outcome.output
    result = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert [run["allocator"] for run in result["runs"]] == ["ctb", "fps"]
    assert all(run["datapath"] == "simulated" for run in result["runs"])
