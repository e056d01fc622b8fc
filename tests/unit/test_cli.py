"""drlctl against a served control API: what people see, what programs see, and how it exits."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from textwrap import dedent

import pytest
import trio
from click.testing import CliRunner, Result

from drld.cli import client, main
from drld.errors import ConfigError, DatapathError
from tests.control_fake import FPS_LIMIT, GRD_LIMIT, PEERS, STATUS, FakeDaemon, record, served

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def daemon() -> FakeDaemon:
    return FakeDaemon()


@pytest.fixture
async def control(daemon: FakeDaemon, tmp_path: Path) -> AsyncIterator[Path]:
    path = tmp_path / "lim1.sock"
    async with served(daemon, path):
        yield path


def invoke(*args: object, env: dict[str, str] | None = None) -> Result:
    environment: dict[str, str | None] = {"DRLD_CONTROL": None, **(env or {})}
    return CliRunner().invoke(main, list(map(str, args)), prog_name="drlctl", env=environment)


async def drlctl(control: Path, *args: object) -> Result:
    """Run drlctl in a thread, so that the server runs beside it."""
    with trio.fail_after(20):
        return await trio.to_thread.run_sync(invoke, "--socket", control, *args)


async def output(control: Path, *args: object) -> str:
    result = await drlctl(control, *args)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def lines(text: str) -> str:
    return dedent(text).lstrip("\n")


# For people


async def test_status(control: Path) -> None:
    assert await output(control, "status") == lines("""
        limiter   lim1, drld 0.1.0, pid 4711, up 2h 03m
        state     ready
        datapath  nfqueue (asked for), firewall iptables, queue 17
        counters  overflow 2, truncated 0
        fabric    pushsum, branching 3, every 50.0 ms
        peers     1 of 2 connected
        gossip    1200 sent (57.6 kB), 1180 received, 3 rejected (tag 2, value 1)
        limits    2
        config    /etc/drld/drld.toml, loaded 2023-11-14 22:13:20 UTC
    """)


async def test_status_of_a_daemon_in_trouble(control: Path, daemon: FakeDaemon) -> None:
    daemon.report["ready"] = False
    daemon.report["datapath"]["queue"] = None
    daemon.report["datapath"]["counters"] = {}
    daemon.report["gossip"]["rejected"] = {}
    daemon.report["config"]["reload_error"] = "drld.toml: a: missing\ndrld.toml: b: missing"
    assert await output(control, "status") == lines("""
        limiter   lim1, drld 0.1.0, pid 4711, up 2h 03m
        state     starting
        datapath  nfqueue (asked for), firewall iptables, queue -
        counters  -
        fabric    pushsum, branching 3, every 50.0 ms
        peers     1 of 2 connected
        gossip    1200 sent (57.6 kB), 1180 received, 0 rejected
        limits    2
        config    /etc/drld/drld.toml, loaded 2023-11-14 22:13:20 UTC
        reload    refused, so the configuration above stays in force:
                  drld.toml: a: missing
                  drld.toml: b: missing
    """)


async def test_limits(control: Path) -> None:
    assert await output(control, "limits") == lines("""
        NAME        ALLOCATOR  MODE     ID         RATE     IN FORCE       DEMAND  LOCAL LIMIT  DROP P  FLOWS  FORWARDED  DROPPED
        customer-a  fps        enforce   1  10.0 Mbit/s  6.67 Mbit/s  3.12 Mbit/s  3.05 Mbit/s   0.000      3     129 MB  1.20 MB
        b           grd        shadow   20  1.50 Gbit/s  1.50 Gbit/s      0 bit/s            -   0.125      0        0 B      0 B
    """)  # noqa: E501 -- as wide as it is


async def test_no_limits_are_headers_alone(control: Path, daemon: FakeDaemon) -> None:
    daemon.reports = []
    assert len((await output(control, "limits")).splitlines()) == 1


async def test_limit_show(control: Path) -> None:
    assert await output(control, "limit", "show", "customer-a") == lines("""
        limit        customer-a (id 1), fps, enforce, on failure share
        rate         10.0 Mbit/s, burst 75.0 kB, every 50.0 ms
        in force     6.67 Mbit/s
        demand       3.12 Mbit/s, 3 flows sampled
        fleet        weight 3.02 here, 7.10 elsewhere (lim2, 2 more), age 43.0 ms
        local limit  3.05 Mbit/s
        enforcement  drop probability 0, fill 3.05 Mbit/s, depth 22.9 kB
        arrived      130 MB in 90123 packets
        forwarded    129 MB in 89300 packets
        dropped      1.20 MB in 823 packets
    """)


async def test_limit_show_without_bucket_and_fleet(control: Path) -> None:
    assert await output(control, "limit", "show", "b") == lines("""
        limit        b (id 20), grd, shadow, on failure open
        rate         1.50 Gbit/s, burst 2.00 MB, every 500 ms
        in force     1.50 Gbit/s
        demand       0 bit/s, 0 flows sampled
        fleet        rate 0 bit/s here, 1.00 Gbit/s elsewhere (nobody), age -
        local limit  -
        enforcement  drop probability 0.125, no bucket
        arrived      0 B in 0 packets
        forwarded    0 B in 0 packets
        dropped      0 B in 0 packets
    """)


async def test_peers(control: Path) -> None:
    assert await output(control, "peers") == lines("""
        NAME  ADDRESS        STATE          LAST HEARD  RECEIVED  LOST  LATE  REJECTED
        lim2  10.0.0.2:7946  connected     43.0 ms ago      1180    12     3         0
        lim3  10.0.0.3:7946  disconnected        never         0     0     0         1
    """)


async def test_trace(control: Path, daemon: FakeDaemon) -> None:
    daemon.ticks_for_readers = 5
    assert await output(control, "trace", "b", "--count", 2) == lines("""
        TIME (UTC)        ARRIVED    FORWARDED      DROPPED       DEMAND    LOCAL   REMOTE     IN FORCE  LOCAL LIMIT  DROP P  FLOWS
        22:13:20.000  3.20 Mbit/s  3.10 Mbit/s   100 kbit/s  3.12 Mbit/s     3.02      7.1  10.0 Mbit/s  3.05 Mbit/s   0.000      0
        22:13:20.050  3.20 Mbit/s  3.10 Mbit/s   100 kbit/s  3.12 Mbit/s     3.02      7.1  10.0 Mbit/s            -   0.000      1
    """)  # noqa: E501 -- as wide as it is
    with trio.fail_after(10):
        await daemon.has_readers(0)


async def test_reload(control: Path, daemon: FakeDaemon) -> None:
    assert await output(control, "reload") == "/etc/drld/drld.toml is in force\n"
    assert daemon.reloads == 1


# For programs


async def test_json(control: Path) -> None:
    assert json.loads(await output(control, "status", "--json")) == STATUS
    assert json.loads(await output(control, "limits", "--json")) == [FPS_LIMIT, GRD_LIMIT]
    assert json.loads(await output(control, "limit", "show", "b", "--json")) == GRD_LIMIT
    assert json.loads(await output(control, "peers", "--json")) == PEERS
    assert json.loads(await output(control, "reload", "--json")) == STATUS["config"]


async def test_json_trace(control: Path, daemon: FakeDaemon) -> None:
    daemon.ticks_for_readers = 3
    text = await output(control, "trace", "b", "--count", 3, "--json")
    assert [json.loads(line) for line in text.splitlines()] == [
        {**record("b", number), "number": number} for number in range(3)
    ]


# Refusals: one line, status 1


async def test_an_unknown_limit(control: Path) -> None:
    for command in (["limit", "show", "zzz"], ["trace", "zzz"]):
        result = await drlctl(control, *command)
        assert result.exit_code == 1
        assert result.stdout == ""
        assert result.stderr == "drlctl: the daemon refuses: no limit is named 'zzz'\n"


async def test_a_limit_name_is_no_path(control: Path) -> None:
    result = await drlctl(control, "limit", "show", "../status")
    assert (result.exit_code, result.stdout) == (1, "")


async def test_a_refused_configuration(control: Path, daemon: FakeDaemon) -> None:
    daemon.reload_error = ConfigError(["drld.toml: a: missing", "drld.toml: b: missing"])
    result = await drlctl(control, "reload")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == lines("""
        drlctl: the daemon keeps its configuration, for the file cannot be used:
        drld.toml: a: missing
        drld.toml: b: missing
    """)
    result = await drlctl(control, "reload", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {
        "problems": ["drld.toml: a: missing", "drld.toml: b: missing"]
    }


async def test_a_host_that_refuses(control: Path, daemon: FakeDaemon) -> None:
    daemon.reload_error = DatapathError("iptables: no such chain")
    result = await drlctl(control, "reload")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "drlctl: the daemon refuses: iptables: no such chain\n"


async def test_a_trace_that_the_daemon_ends(control: Path, daemon: FakeDaemon) -> None:
    daemon.ticks_for_readers = 1

    async def end() -> None:
        await daemon.has_readers(1)
        daemon.hub.retain([])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end)
        result = await drlctl(control, "trace", "b", "--json")
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 1
    assert result.stderr == (
        "drlctl: the daemon ended the trace: was it stopped, or the limit removed?\n"
    )


async def test_skipped_records_are_told(control: Path, daemon: FakeDaemon) -> None:
    daemon.ticks_for_readers = 1000
    result = await drlctl(control, "trace", "b", "--count", 1)
    assert result.exit_code == 0
    assert result.stderr == "drlctl: 872 records skipped: too slow a reader\n"


def refused(result: Result) -> str:
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("drlctl: ")
    assert len(result.stderr.splitlines()) == 1
    return result.stderr


def test_no_socket(tmp_path: Path) -> None:
    path = tmp_path / "lim1.sock"
    for command in (["status"], ["limits"], ["peers"], ["reload"], ["trace", "b"]):
        message = refused(invoke("--socket", path, *command))
        assert str(path) in message
        assert "is drld running" in message


def test_a_socket_that_a_killed_daemon_left(tmp_path: Path) -> None:
    path = tmp_path / "lim1.sock"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    assert "refused" in refused(invoke("--socket", path, "status"))


@asynccontextmanager
async def stranger(path: Path, answer: bytes) -> AsyncIterator[None]:
    """Something that is not drld answers on a socket."""
    listening = trio.socket.socket(socket.AF_UNIX)
    await listening.bind(str(path))
    listening.listen()

    async def speak(stream: trio.SocketStream) -> None:
        if await stream.receive_some():
            await stream.send_all(answer)

    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, speak, [trio.SocketListener(listening)])
        yield
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "broke off"),
        (b"SSH-2.0-OpenSSH\r\n", "broke off"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "is not drld"),
        (b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\n[]", "the daemon refuses: []"),
    ],
)
async def test_something_else_answers(tmp_path: Path, answer: bytes, message: str) -> None:
    path = tmp_path / "other.sock"
    async with stranger(path, answer):
        assert message in refused(await drlctl(path, "status"))


# Which daemon


async def test_the_socket_of_the_environment(control: Path) -> None:
    result = await trio.to_thread.run_sync(
        lambda: invoke("status", "--json", env={"DRLD_CONTROL": str(control)})
    )
    assert json.loads(result.stdout) == STATUS


async def test_the_only_socket(control: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RUN_DIRECTORY", control.parent)
    (control.parent / "notes.txt").touch()
    result = await trio.to_thread.run_sync(invoke, "status", "--json")
    assert json.loads(result.stdout) == STATUS


def test_no_socket_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for directory in (tmp_path, tmp_path / "missing"):
        monkeypatch.setattr(client, "RUN_DIRECTORY", directory)
        assert refused(invoke("status")) == (
            f"drlctl: no control socket in {directory}: is drld running? (see also --socket)\n"
        )


def test_several_sockets_are_a_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RUN_DIRECTORY", tmp_path)
    for name in ("lim2.sock", "lim1.sock"):
        with socket.socket(socket.AF_UNIX) as daemon_socket:
            daemon_socket.bind(str(tmp_path / name))
    result = invoke("status")
    assert result.exit_code == 2
    assert f"choose one with --socket: {tmp_path}/lim1.sock, {tmp_path}/lim2.sock" in result.stderr


@pytest.mark.parametrize(
    "args",
    [
        ["frobnicate"],
        ["status", "extra"],
        ["limit", "show"],
        ["trace"],
        ["trace", "b", "--count", "0"],
        ["trace", "b", "--count", "many"],
        ["--sock"],
    ],
)
def test_wrong_usage(args: list[str]) -> None:
    result = invoke(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage: drlctl" in result.stderr


def test_help_names_every_command() -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    for command in ("status", "limits", "limit", "peers", "trace", "reload"):
        assert f"\n  {command} " in result.stdout


# As a process


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
