"""drlctl as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.control_fake import FPS_LIMIT, GRD_LIMIT, FakeDaemon

ROOT = Path(__file__).resolve().parents[3]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDEVMODE": "1"}


async def test_drlctl_works_as_a_process_of_its_own(control: Path) -> None:
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


@pytest.mark.parametrize(
    "arguments", [["limits"], ["status", "--json"], ["top", "--once"], ["--help"], ["--version"]]
)
async def test_output_that_cannot_be_written_is_one_line(
    control: Path, arguments: list[str]
) -> None:
    with Path("/dev/full").open("wb") as full, trio.fail_after(60):
        done = await trio.run_process(
            [sys.executable, "-m", "drld.cli", "--socket", str(control), *arguments],
            stdout=full,
            capture_stderr=True,
            check=False,
            env=environment(),
        )
    assert (done.returncode, done.stderr) == (
        1,
        b"drlctl: standard output: No space left on device\n",
    )


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [("utf-8", "größe-東京"), ("latin-1", "größe-\\u6771\\u4eac"), ("ascii", "gr")],
)
async def test_a_terminal_without_a_character_shows_its_number(
    control: Path, daemon: FakeDaemon, encoding: str, shown: str
) -> None:
    daemon.report["config"]["file"] = "/etc/größe-東京\udcff.toml"
    with trio.fail_after(60):
        done = await trio.run_process(
            [sys.executable, "-m", "drld.cli", "--socket", str(control), "status"],
            capture_stdout=True,
            capture_stderr=True,
            env={**environment(), "PYTHONIOENCODING": encoding},
        )
    assert shown in done.stdout.decode(encoding if encoding != "ascii" else "utf-8", "replace")
    assert done.stderr == b""


async def test_an_argument_that_is_not_utf_8_is_refused(control: Path) -> None:
    packet = b"tcp 10.0.0.1:1 > 10.0.0.2:80 out eth\xff"
    for arguments in (("limit", "show", b"\xff"), ("explain", packet)):
        with trio.fail_after(60):
            done = await trio.run_process(
                [sys.executable, "-m", "drld.cli", "--socket", str(control), *arguments],
                capture_stderr=True,
                check=False,
                env=environment(),
            )
        assert done.returncode == 2
        assert b"Error: an argument must be UTF-8 (got '" in done.stderr


@pytest.mark.parametrize(
    "arguments", [["limits"], ["metrics"], ["top", "--once"], ["explain", "a.jsonl", "--json"]]
)
async def test_a_pipe_that_is_closed_early_ends_the_command_quietly(
    control: Path, arguments: list[str], tmp_path: Path
) -> None:
    log = tmp_path / "a.jsonl"
    log.write_text('{"t": 1, "namespace": "api"}\n')
    arguments = [str(log) if it == log.name else it for it in arguments]
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed, trio.fail_after(60):
        done = await trio.run_process(
            [sys.executable, "-m", "drld.cli", "--socket", str(control), *arguments],
            stdout=closed,
            capture_stderr=True,
            check=False,
            env=environment(),
        )
    assert done.stderr == b""
    assert done.returncode == 128 + signal.SIGPIPE


async def test_a_view_without_any_output_is_written_once(control: Path) -> None:
    with trio.fail_after(60):
        done = await trio.run_process(
            [sys.executable, "-m", "drld.cli", "--socket", str(control), "top"],
            capture_stderr=True,
            check=False,
            env=environment(),
            preexec_fn=partial(os.close, 1),
        )
    assert (done.returncode, done.stderr) == (0, b"")
