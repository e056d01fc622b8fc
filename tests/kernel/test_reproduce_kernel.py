"""A figure end to end: its runs, two at a time, its report, and that a second time nothing is
measured again; and that nothing is left of what is interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from testbed import netns
from testbed.harness.figure import Figure, Series
from testbed.harness.runner import REPORT, SUMMARY
from testbed.reproduce import __main__ as command
from testbed.reproduce import fig3
from testbed.reproduce.baseline import BASELINE

from .topology import DEADLINE_S

pytestmark = pytest.mark.kernel

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
    assert "data:image/png;base64," in (tmp_path / REPORT).read_text()

    again = CliRunner().invoke(command.main, [*call, "--only-report"])
    assert again.exit_code == 0, again.output


def workers(parent: int) -> dict[int, str]:
    """The processes that a process started, with the owner's part of their namespaces' names."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == parent:
            pid = int(stat.parent.name)
            found[pid] = f"{netns.PREFIX}-{pid}.{fields[19]}-"
    return found


def namespaces(prefixes: list[str]) -> list[str]:
    names = [path.name for path in netns.NETNS_DIRECTORY.iterdir()]
    return [name for name in names if name.startswith(tuple(prefixes))]


async def test_what_is_interrupted_leaves_nothing_behind(tmp_path: Path) -> None:
    call = ["fig3", "--quick", "--jobs", "2", "--out", str(tmp_path)]
    # Its own session, or the interrupt might come from elsewhere than from here.
    process = subprocess.Popen(
        [sys.executable, "-m", "testbed.reproduce", *call],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        cwd=Path(command.__file__).parents[2],
    )  # fmt: skip
    try:
        deadline = trio.current_time() + DEADLINE_S
        running: dict[int, str] = {}
        while not all(namespaces([prefix]) for prefix in running.values()) or len(running) < 2:
            assert process.poll() is None, process.communicate()[0]
            assert trio.current_time() < deadline
            await trio.sleep(0.05)
            running = workers(process.pid)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 128 + signal.SIGINT, said
    assert "interrupted; everything is removed" in said
    assert namespaces(list(running.values())) == []
    assert not any(Path(f"/proc/{pid}").exists() for pid in running)
    assert json.loads((tmp_path / "runs/baseline/result.json").read_text())["runs"] == []
