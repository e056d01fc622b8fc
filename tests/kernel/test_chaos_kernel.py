"""The chaos suite: its quick run keeps every promise, and an interrupted one leaves nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from testbed import netns
from testbed.chaos.registry import FAULTS, NOT_QUICK

pytestmark = pytest.mark.realtime

_PATIENCE_S = 900.0
"""Longest run. An idle host takes three minutes; a busy one repeats what it has disturbed."""
_LAST = "-lim-l3"
"""The end of the name of the namespace of a fleet's last limiter."""
_ROOT = Path(netns.__file__).parents[1]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "testbed.chaos", *arguments]


def test_every_promise_is_kept(tmp_path: Path) -> None:
    done = subprocess.run(
        command("--quick", "--out", str(tmp_path)),
        capture_output=True, text=True, timeout=_PATIENCE_S, check=False, cwd=_ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    stages = json.loads((tmp_path / "chaos.json").read_text())["stages"]
    carried_out = [record["fault"] for stage in stages for record in stage["records"]]
    assert sorted([*carried_out, *NOT_QUICK[1]]) == sorted(FAULTS)


def test_promises_of_limits_for_each_user_are_kept() -> None:
    """The faults that daemons themselves take part in; each ends with all of them."""
    faults = ["kill", "freeze", "clocks", "forge"]
    done = subprocess.run(
        [sys.executable, "-m", "testbed.chaos.keyed", "--seconds", "2", "--json", *faults],
        capture_output=True, text=True, timeout=_PATIENCE_S, check=False, cwd=_ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [it["fault"] for it in found] == faults
    assert all(it["holds"] and it["admitted"] > 60 for it in found)


@pytest.mark.parametrize(("fault", "broker"), [("kill", "nats"), ("shift", "mosquitto")])
def test_promises_of_limits_on_topics_are_kept(fault: str, broker: str) -> None:
    """A limiter is killed while messages wait; and shares follow publishers under loss."""
    options = ["--broker", broker, "--seconds", "2", "--window", "4", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "testbed.chaos.messages", *options, fault],
        capture_output=True, text=True, timeout=_PATIENCE_S, check=False, cwd=_ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["fault"], found["holds"]) == (f"{fault}, {broker}", True)
    assert found["confirmed"] > 1000
    assert {it["statement"] for it in found["promises"]} >= {"beyond", "lost", "rates", "bursts"}


async def test_an_interrupted_run_leaves_nothing_behind(tmp_path: Path) -> None:
    before = set(netns.NETNS_DIRECTORY.glob(f"*{_LAST}"))
    process = subprocess.Popen(
        command("kill-all", "--quick", "--out", str(tmp_path)),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        cwd=_ROOT,
    )  # fmt: skip
    try:
        with trio.fail_after(_PATIENCE_S):
            while not (made := set(netns.NETNS_DIRECTORY.glob(f"*{_LAST}")) - before):
                assert process.poll() is None, process.communicate()[0]
                await trio.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=_PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 128 + signal.SIGINT, said
    for path in made:
        assert list(netns.NETNS_DIRECTORY.glob(f"{path.name.removesuffix(_LAST)}-*")) == []
    stages = json.loads((tmp_path / "chaos.json").read_text())["stages"]
    assert [stage["records"] for stage in stages] == [[]]
