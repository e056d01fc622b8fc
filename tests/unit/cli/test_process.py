"""drlctl as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import trio

from tests.control_fake import FPS_LIMIT, GRD_LIMIT, FakeDaemon

ROOT = Path(__file__).resolve().parents[3]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDEVMODE": "1"}


async def test_a_real_process(control: Path) -> None:
    with trio.fail_after(60):
        done = await trio.run_process(
            [sys.executable, "-m", "drld.cli", "--socket", str(control), "limits", "--json"],
            capture_stdout=True,
            capture_stderr=True,
            env=environment(),
        )
    assert json.loads(done.stdout) == [FPS_LIMIT, GRD_LIMIT]
    assert done.stderr == b""


async def test_an_interrupted_trace_ends_well(control: Path, daemon: FakeDaemon) -> None:
    daemon.ticks_for_readers = 2
    command = [sys.executable, "-m", "drld.cli", "--socket", str(control), "trace", "b", "--json"]
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            process = await nursery.start(
                lambda task_status: trio.run_process(
                    command,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=environment(),
                    check=False,
                    # A shell's background jobs, and what they start, ignore it.
                    preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
                    task_status=task_status,
                )
            )
            received = b""
            while received.count(b"\n") < 2:
                received += await process.stdout.receive_some()
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 0
            assert await process.stderr.receive_some() == b""
        await daemon.has_readers(0)


def test_starting_imports_nothing_heavy() -> None:
    script = (
        "import sys, drld.cli\n"
        "heavy = {'trio', 'scapy', 'bcc', 'httpx', 'pydantic', 'starlette', 'asyncio'}\n"
        "sys.exit(', '.join(heavy & sys.modules.keys()) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
