"""The benchmark end to end: a tiny one, what it writes, and that nothing of it stays."""

from __future__ import annotations

import io
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from testbed import netns
from testbed.bench.__main__ import main
from testbed.bench.bpf_stats import statistics_on, timed
from testbed.bench.contestants import (
    HASHLIMIT,
    NFT,
    Drld,
    Program,
    bare_loop,
    everything,
    loop_in_c,
    prefixes,
)
from testbed.bench.lanes import Contestant, Setting, contest, ratios
from testbed.bench.registry import Benchmark
from testbed.bench.summary import Outcome, Row
from testbed.bench.traffic import SMALLEST_FRAME, Blast, Tcp
from testbed.harness.progress import Progress
from tests.kernel.topology import DEADLINE_S

CONTESTANTS = [
    *(Contestant(), Drld("kernel"), Drld("nfqueue")),
    *(NFT, HASHLIMIT, bare_loop(), loop_in_c()),
]


@contextmanager
def workspace() -> Iterator[Setting]:
    with netns.workspace() as state, Path(os.devnull).open("w", encoding="ascii") as silence:
        cpus = sorted(os.sched_getaffinity(0))
        yield Setting(state, Progress(silence), True, (cpus[0], cpus[-1]))


# As fast as the host can, through what all its namespaces share: the CPUs' queues.
@pytest.mark.alone
async def test_every_contestant_lets_all_kinds_of_traffic_pass() -> None:
    with workspace() as setting:
        async with contest(setting, CONTESTANTS) as field:
            tcp = await Tcp.start(field, 2, 0.3, 0.1)
            blast = Blast(field, SMALLEST_FRAME, 0.1, rate=1000, warmup_s=0.1)
            for measure, quantity in ((tcp.measure, "bps"), (blast.measure, "pps")):
                seen = await field.alternate("test", 2, measure)
                # A moment may be the one that the host, or a lost SYN, took away.
                nothing = [
                    contestant.name
                    for contestant, samples in zip(CONTESTANTS, seen, strict=True)
                    if not any(sample[quantity] > 0 for sample in samples)
                ]
                assert nothing == [], quantity
                assert [len(samples) for samples in seen] == [2] * len(CONTESTANTS)
        assert netns.own() == []


async def tiny(setting: Setting) -> Outcome:
    async with contest(setting, [Contestant(), Drld("kernel")]) as field:
        # Longer than a host stands still.
        tcp = await Tcp.start(field, 2, 1.0, 0.1)
        none, limited = await field.alternate("pair", setting.choose(9, 2), tcp.measure)
    return Outcome([Row("", "drld", "ratio", "", ratios(limited, none, "bps"))], "ratio")


def test_a_benchmark_writes_its_result_and_cleans_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.bench.__main__.BENCHMARKS", {"forward": Benchmark("a pair", tiny)})
    shown = io.StringIO()
    monkeypatch.setattr("testbed.bench.__main__.Progress", partial(Progress, shown))
    file, figure = tmp_path / "result.json", tmp_path / "figure.png"
    arguments = ["forward", "--quick", "--json", str(file), "--plot", str(figure)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert "forward: a pair" in done.stdout
    assert "forward: pair, round 2 of 2" in shown.getvalue().splitlines()
    found = json.loads(file.read_text(encoding="utf-8"))
    (measured,) = found["benchmarks"]["forward"]["rows"]
    assert len(measured["values"]) == 2
    assert all(value > 0 for value in measured["values"])
    assert figure.exists()
    assert netns.own() == []
    assert not netns.state_directory().exists()


@contextmanager
def in_the_middle() -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A benchmark in a slice, with a daemon that is stopped, and its owner's name."""
    command = [sys.executable, "-m", "testbed.bench", "pps", "--quick"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        owner = netns.owner(process.pid)
        try:
            assert process.stderr is not None
            seen = b""
            deadline = time.monotonic() + 6 * DEADLINE_S
            while b"drld kernel over none, round" not in seen:
                ready, _, _ = select.select([process.stderr], [], [], deadline - time.monotonic())
                read = os.read(process.stderr.fileno(), 4096) if ready else b""
                assert read, seen
                seen += read
            assert left_of(owner)
            yield process, owner
        finally:
            process.kill()
            process.wait()
            netns.remove_stale()


def left_of(owner: str) -> list[Path]:
    return [
        *netns.NETNS_DIRECTORY.glob(f"{netns.PREFIX}-{owner}*"),
        *netns.STATE_DIRECTORY.glob(f"{netns.PREFIX}-{owner}*"),
    ]


@pytest.mark.alone
def test_an_interrupted_benchmark_leaves_nothing() -> None:
    """Both signals: test_testbed_kernel.py."""
    with in_the_middle() as (process, owner):
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 128 + signal.SIGTERM
        assert left_of(owner) == []


@pytest.mark.alone
def test_the_next_benchmark_removes_leftovers_of_a_killed_one() -> None:
    with in_the_middle() as (process, owner):
        process.kill()
        process.wait()
        # One that is stopped does not hear that its parent died.
        assert any(owner in name for name in netns.remove_stale())
        assert left_of(owner) == []


async def test_programs_are_measured_and_only_one_refuses() -> None:
    programs = [
        Program("empty"),
        Program("drld", prefixes(3), [{"fill_rate": 10**9, "depth": 10**6}]),
        Program("refuses", everything(), [{"fill_rate": 1, "depth": 1}]),
    ]
    with workspace() as setting, statistics_on():
        async with contest(setting, programs) as field:
            blast = Blast(field, SMALLEST_FRAME, 0.2, rate=1000, addresses=3, warmup_s=0.1)
            seen = await field.alternate("test", 2, timed(field, blast.measure))
    for program, samples in zip(programs, seen, strict=True):
        # A process that stands still may find its slice over.
        assert any(each["ns"] > 0 for each in samples), program.name
        passed = any(each["pps"] > 0 for each in samples)
        assert passed == (program.name != "refuses"), program.name
