"""The chaos suite: its quick run keeps every promise, and an interrupted one leaves nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from testbed import netns
from testbed.chaos.registry import FAULTS, NOT_QUICK

pytestmark = pytest.mark.realtime

_PATIENCE_S = 900.0
"""Longest run. An idle host takes a minute and a half; a busy one repeats what it has disturbed."""
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


async def told(*arguments: str) -> list[dict[str, Any]]:
    """The objects that a command prints, if all that it promises holds."""
    process = await trio.run_process(
        [sys.executable, "-m", *arguments],
        capture_stdout=True, capture_stderr=True, check=False, cwd=_ROOT,
    )  # fmt: skip
    said = process.stdout.decode()
    assert process.returncode == 0, said + process.stderr.decode()
    return [json.loads(line) for line in said.splitlines()]


async def test_promises_of_limits_for_each_user_and_on_topics_are_kept() -> None:
    """For each user, the faults that daemons themselves take part in; each ends with all of them.
    On topics, a limiter is killed while messages wait, and shares follow publishers under loss.

    Their fleets mostly wait, so they run beside each other, as those of the quick run do.
    """

    async def of_users(*faults: str) -> None:
        found = await told("testbed.chaos.keyed", "--seconds", "2", "--json", *faults)
        assert [it["fault"] for it in found] == [*faults]
        assert all(it["holds"] and it["admitted"] > 60 for it in found)

    async def of_topics(fault: str, broker: str) -> None:
        options = ["--broker", broker, "--seconds", "2", "--window", "4", "--json"]
        (found,) = await told("testbed.chaos.messages", *options, fault)
        assert (found["fault"], found["holds"]) == (f"{fault}, {broker}", True)
        assert found["confirmed"] > 1000
        assert {it["statement"] for it in found["promises"]} >= {
            "beyond",
            "lost",
            "rates",
            "bursts",
        }

    with trio.fail_after(_PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(of_users, "kill", "freeze")
            nursery.start_soon(of_users, "clocks", "forge")
            nursery.start_soon(of_topics, "kill", "nats")
            nursery.start_soon(of_topics, "shift", "mosquitto")


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
