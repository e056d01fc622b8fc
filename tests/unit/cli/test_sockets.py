"""Which daemon drlctl talks to, and what it says where there is none; and wrong usage."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from drld import __version__
from drld.cli import client
from drld.messages.front import listeners
from tests.control_fake import STATUS, record
from tests.unit.cli.drlctl import drlctl, invoke, refused


def test_an_absent_socket_is_named(tmp_path: Path) -> None:
    path = tmp_path / "lim1.sock"
    for command in (["status"], ["limits"], ["peers"], ["reload"], ["trace", "b"]):
        message = refused(invoke("--socket", path, *command))
        assert str(path) in message
        assert "is drld running" in message


def test_a_socket_that_a_killed_daemon_left_refuses(tmp_path: Path) -> None:
    path = tmp_path / "lim1.sock"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    assert "refused" in refused(invoke("--socket", path, "status"))


def test_a_daemon_that_many_wait_for_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket that does not block would fail at once where the backlog is full."""
    path = tmp_path / "lim1.sock"
    monkeypatch.setattr(client.Daemon.__init__, "__defaults__", (0.1,))
    with socket.socket(socket.AF_UNIX) as daemon, socket.socket(socket.AF_UNIX) as first:
        daemon.bind(str(path))
        daemon.listen(0)
        first.connect(str(path))
        said = refused(invoke("--socket", path, "status"))
    assert said == f"drlctl: the daemon at {path} does not answer\n"


def _whole(request: bytes) -> bool:
    """Whether the head of a request is there, and its body. Without it, the end of the connection
    would break the client's pipe."""
    head, end, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    return bool(end) and len(body) >= (int(length[1]) if length else 0)


@asynccontextmanager
async def stranger(path: Path, answer: bytes) -> AsyncIterator[None]:
    """Something that is not drld answers on a socket."""
    listening = trio.socket.socket(socket.AF_UNIX)
    await listening.bind(str(path))
    listening.listen()

    async def speak(stream: trio.SocketStream) -> None:
        request = b""
        while not _whole(request) and (data := await stream.receive_some()):
            request += data
        await stream.send_all(answer)

    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, speak, [trio.SocketListener(listening)])
        yield
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "closed the connection"),
        (b"SSH-2.0-OpenSSH\r\n", "is not drld"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}", "closed the connection"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "is not drld"),
        (b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\n[]", "the daemon refuses: []"),
    ],
)
async def test_an_answer_of_another_server_is_an_error(
    tmp_path: Path, answer: bytes, message: str
) -> None:
    path = tmp_path / "other.sock"
    async with stranger(path, answer):
        assert message in refused(await drlctl(path, "status"))


async def test_a_change_whose_answer_is_lost_is_reported(tmp_path: Path) -> None:
    """The daemon was killed between the change and its answer, or is too late."""
    path = tmp_path / "other.sock"
    said = "; the change may be in force: check with drlctl before you try again\n"
    async with stranger(path, b""):
        assert refused(await drlctl(path, "limit", "remove", "a")).endswith(said)
        assert not refused(await drlctl(path, "limits")).endswith(said)


async def test_a_trace_that_breaks_off_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "other.sock"
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    line = json.dumps({**record("a", 1), "number": 0}).encode() + b"\n"
    async with stranger(path, head + b"%x\r\n%b\r\n" % (len(line), line)):
        assert "closed the connection" in (await drlctl(path, "trace", "a", "--json")).stderr


# Which daemon


async def test_the_environment_may_name_the_socket(control: Path) -> None:
    result = await trio.to_thread.run_sync(
        lambda: invoke("status", "--json", env={"DRLD_CONTROL": str(control)})
    )
    assert json.loads(result.stdout) == STATUS


async def test_the_only_socket_is_chosen(control: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RUN_DIRECTORY", control.parent)
    (control.parent / "notes.txt").touch()
    result = await trio.to_thread.run_sync(invoke, "status", "--json")
    assert json.loads(result.stdout) == STATUS


def test_a_directory_without_sockets_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    for directory in (tmp_path, tmp_path / "missing"):
        monkeypatch.setattr(client, "RUN_DIRECTORY", directory)
        assert refused(invoke("status")) == (
            f"drlctl: no control socket in {directory}: is drld running? (see also --socket)\n"
        )
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/own")
    assert f"no control socket in {directory} or /own/drld: is" in refused(invoke("status"))


def test_several_sockets_require_a_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RUN_DIRECTORY", tmp_path)
    for name in ("lim2.sock", "lim1.sock"):
        with socket.socket(socket.AF_UNIX) as daemon_socket:
            daemon_socket.bind(str(tmp_path / name))
    result = invoke("status")
    assert result.exit_code == 2
    assert f"choose one with --socket: {tmp_path}/lim1.sock, {tmp_path}/lim2.sock" in result.stderr


async def test_sockets_of_killed_daemons_and_of_clients_are_no_choice(
    control: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/requests-clients.md has the socket for requests beside the control socket.

    One for messages closes the connection, as a control socket does that has too many.
    """
    monkeypatch.setattr(client, "RUN_DIRECTORY", control.parent)
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(control.parent / "killed.sock"))
    async with stranger(control.parent / "mqtt.sock", b""):
        (control.parent / "mqtt.sock").chmod(listeners.SOCKET_MODE)
        result = await trio.to_thread.run_sync(invoke, "status", "--json")
        assert json.loads(result.stdout) == STATUS
        # A daemon that hangs is a choice: a change must not go to another one.
        with socket.socket(socket.AF_UNIX) as hangs:
            hangs.bind(str(control.parent / "lim2.sock"))
            hangs.listen()
            result = await trio.to_thread.run_sync(invoke, "status")
    assert "choose one with --socket" in result.stderr
    assert "mqtt.sock" not in result.stderr


@pytest.mark.parametrize(
    "args",
    [
        ["frobnicate"],
        ["status", "extra"],
        ["limit", "remove"],
        ["trace"],
        ["trace", "b", "--count", "0"],
        ["trace", "b", "--count", "many"],
        ["--sock"],
    ],
)
def test_wrong_usage_is_answered_with_the_right_one(args: list[str]) -> None:
    result = invoke(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage: drlctl" in result.stderr


def test_help_names_every_command() -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    for command in ("status", "limits", "limit", "peers", "trace", "reload", "keys"):
        assert f"\n  {command} " in result.stdout


READING = [
    *(("status",), ("limits",), ("limit", "show"), ("limit", "show", "customer-a"), ("peers",)),
    *(("keys", "list"), ("top", "--once"), ("limit", "pause", "customer-a"), ("doctor",)),
    ("explain", "tcp 10.0.0.1:1 > 10.0.0.2:80 out eth1"),
]


@pytest.mark.parametrize("version", ["0.0.9", __version__])
async def test_a_daemon_of_another_version_is_not_a_traceback(tmp_path: Path, version: str) -> None:
    """Its answers lack fields, or have others in their place."""
    path = tmp_path / "lim1.sock"
    values: tuple[object, ...] = ({}, [{}], 7)
    for value in values:
        body = json.dumps({"version": version} if value == {} else value).encode()
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        async with stranger(path, answer):
            for command in READING:
                result = await drlctl(path, *command)
                assert result.exit_code == 1, (command, value)
                (line,) = result.stderr.splitlines()
                assert line.startswith("drlctl: cannot read the answer: ")
                told = "use its own drlctl" in line
                assert told == (value == {} and version != __version__)
        path.unlink()


async def test_a_path_that_an_older_daemon_lacks_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "lim1.sock"
    body = b'{"error": "Not Found"}'
    head = b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with stranger(path, head + body):
        said = refused(await drlctl(path, "keys", "list"))
    assert said == "drlctl: cannot read the answer: the daemon does not know /v1/keys\n"


@pytest.mark.parametrize(
    "command",
    [
        *(("limit", it, "") for it in ("show", "remove", "pause", "suggest")),
        ("limit", "set", "", "--rate", "5mbit"),
        ("limit", "top", "", "--once"),
        ("trace", ""),
    ],
)
async def test_a_name_without_a_character_is_wrong_usage(
    control: Path, command: tuple[str, ...]
) -> None:
    result = await drlctl(control, *command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error: a limit's name or id must have a character (got '')" in result.stderr


async def test_the_kernel_alone_decides_who_may_connect(
    control: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Group and capabilities decide, too, so a look at the mode would refuse too often."""
    monkeypatch.setattr("os.access", lambda *_arguments, **_options: False)
    assert (await drlctl(control, "status")).exit_code == 0
