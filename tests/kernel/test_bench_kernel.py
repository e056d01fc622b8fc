"""The benchmark end to end: a tiny one, what it writes, and that nothing of it stays."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed import netns
from testbed.bench.contestants import Daemon, Hashlimit, Nothing, bare_loop, loop_in_c
from testbed.bench.lanes import Contestant, Setting, contest
from testbed.bench.traffic import SMALLEST_FRAME, Blast, Tcp
from testbed.progress import Progress
from tests.kernel.topology import DEADLINE_S

pytestmark = pytest.mark.kernel

CONTESTANTS = [
    *(Nothing(), Daemon("kernel"), Daemon("nfqueue")),
    *(Hashlimit(), bare_loop(), loop_in_c()),
]


def bench(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "testbed.bench", *arguments]


@pytest.mark.parametrize("contestant", CONTESTANTS, ids=lambda contestant: contestant.name)
async def test_every_contestant_lets_all_kinds_of_traffic_pass(contestant: Contestant) -> None:
    with netns.workspace() as state, Path(os.devnull).open("w", encoding="ascii") as silence:
        cpus = sorted(os.sched_getaffinity(0))
        setting = Setting(state, Progress(silence), True, (cpus[0], cpus[-1]))
        async with contest(setting, [Nothing(), contestant]) as field:
            tcp = await Tcp.start(field, 2, 0.1, 0.1)
            blast = Blast(field, SMALLEST_FRAME, 0.1, rate=1000, warmup_s=0.1)
            for measure, quantity in ((tcp.measure, "bps"), (blast.measure, "pps")):
                seen = await field.alternate("test", 2, measure)
                assert [len(samples) for samples in seen] == [2, 2]
                assert all(sample[quantity] > 0 for samples in seen for sample in samples)
        assert netns.own() == []


def test_a_quick_benchmark_writes_its_result(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    done = subprocess.run(
        bench("latency", "--quick", "--json", str(file)),
        capture_output=True, text=True, timeout=4 * DEADLINE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("latency: ")
    assert "round 1 of 3" in done.stderr
    found = json.loads(file.read_text(encoding="utf-8"))
    assert list(found["benchmarks"]) == ["latency"]
    assert len(found["benchmarks"]["latency"]["rows"]) > 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_benchmark_leaves_nothing(number: signal.Signals) -> None:
    with subprocess.Popen(bench("forward", "--quick"), stderr=subprocess.PIPE) as process:
        owner = netns.owner(process.pid)
        try:
            assert process.stderr is not None
            seen = b""
            deadline = time.monotonic() + DEADLINE_S
            # In the middle of a slice, with a daemon that is stopped.
            while b"drld kernel, round" not in seen:
                ready, _, _ = select.select([process.stderr], [], [], deadline - time.monotonic())
                assert ready, seen
                seen += os.read(process.stderr.fileno(), 4096)
            assert list(netns.NETNS_DIRECTORY.glob(f"*{owner}*"))
            process.send_signal(number)
            assert process.wait(DEADLINE_S) == 128 + number
            assert not list(netns.NETNS_DIRECTORY.glob(f"*{owner}*"))
            assert not list(netns.STATE_DIRECTORY.glob(f"*{owner}*"))
        finally:
            process.kill()
            process.wait()
            netns.remove_stale()


def test_what_a_killed_benchmark_left_is_removed_by_the_next() -> None:
    with subprocess.Popen(bench("forward", "--quick"), stderr=subprocess.PIPE) as process:
        owner = netns.owner(process.pid)
        assert process.stderr is not None
        seen = b""
        while b"drld kernel, round" not in seen:
            ready, _, _ = select.select([process.stderr], [], [], DEADLINE_S)
            assert ready, seen
            seen += os.read(process.stderr.fileno(), 4096)
        process.kill()
    # One that is stopped does not hear that its parent died; the next run finds it.
    assert any(owner in name for name in netns.remove_stale())
    assert not list(netns.NETNS_DIRECTORY.glob(f"*{owner}*"))
    assert not list(netns.STATE_DIRECTORY.glob(f"*{owner}*"))
