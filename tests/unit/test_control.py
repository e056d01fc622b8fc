"""The control API over a real unix socket."""

from __future__ import annotations

import json
import logging
import socket
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from drld.control import server
from drld.control.server import serve
from drld.control.trace import TRACE_BUFFER, TraceHub
from drld.errors import ConfigError, DatapathError
from tests.control_fake import (
    FPS_LIMIT,
    GRD_LIMIT,
    PEERS,
    STATUS,
    FakeDaemon,
    client,
    many_limits,
    record,
    served,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "lim1.sock"


@pytest.fixture
def daemon() -> FakeDaemon:
    return FakeDaemon()


@pytest.fixture
async def api(daemon: FakeDaemon, path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with served(daemon, path), client(path) as http_client:
        yield http_client


# Reading


async def test_status(api: httpx.AsyncClient) -> None:
    answer = await api.get("/v1/status")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == STATUS


async def test_limits_and_peers_are_lists(api: httpx.AsyncClient) -> None:
    assert (await api.get("/v1/limits")).json() == [FPS_LIMIT, GRD_LIMIT]
    answer = await api.get("/v1/peers")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == PEERS


@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 250])
async def test_a_listing_in_batches_is_one_array(
    api: httpx.AsyncClient, daemon: FakeDaemon, count: int
) -> None:
    daemon.reports = list(many_limits(count))
    assert (await api.get("/v1/limits")).json() == daemon.reports


async def test_one_limit(api: httpx.AsyncClient, daemon: FakeDaemon) -> None:
    assert (await api.get("/v1/limits/b")).json() == GRD_LIMIT
    daemon.reports = list(many_limits(250))
    assert (await api.get("/v1/limits/c249")).json() == daemon.reports[249]


@pytest.mark.parametrize("resource", ["/v1/limits/zzz", "/v1/limits/zzz/trace"])
async def test_an_unknown_limit_is_not_found(api: httpx.AsyncClient, resource: str) -> None:
    answer = await api.get(resource)
    assert answer.status_code == 404
    assert answer.json() == {"error": "no limit is named 'zzz'"}


@pytest.mark.parametrize("resource", ["/", "/v1", "/v1/limits/", "/v1/status/", "/v1/limits/a%2Fb"])
async def test_an_unknown_resource_is_not_found(api: httpx.AsyncClient, resource: str) -> None:
    answer = await api.get(resource)
    assert answer.status_code == 404
    assert answer.json() == {"error": "Not Found"}


@pytest.mark.parametrize(
    ("method", "resource", "allowed"),
    [
        ("POST", "/v1/status", {"GET", "HEAD"}),
        ("DELETE", "/v1/limits", {"GET", "HEAD"}),
        ("PUT", "/v1/limits/b", {"GET", "HEAD"}),
        ("POST", "/v1/limits/b/trace", {"GET", "HEAD"}),
        ("POST", "/v1/peers", {"GET", "HEAD"}),
        ("GET", "/v1/reload", {"POST"}),
    ],
)
async def test_a_wrong_method_is_refused(
    api: httpx.AsyncClient, method: str, resource: str, allowed: set[str]
) -> None:
    answer = await api.request(method, resource)
    assert answer.status_code == 405
    assert answer.json() == {"error": "Method Not Allowed"}
    assert set(answer.headers["allow"].split(", ")) == allowed


async def test_a_head_request_has_no_body(api: httpx.AsyncClient) -> None:
    for resource in ("/v1/status", "/v1/limits", "/v1/limits/b/trace"):
        answer = await api.head(resource)
        assert (answer.status_code, answer.content) == (200, b"")


async def test_a_bug_in_the_daemon_is_an_error_and_no_end(
    api: httpx.AsyncClient, daemon: FakeDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    daemon.report["uptime_s"] = float("nan")
    with caplog.at_level(logging.ERROR, logger="drld.control"):
        answer = await api.get("/v1/status")
        await wait_all_tasks_blocked()  # It is logged after the answer went out.
    assert answer.status_code == 500
    assert answer.json() == {"error": "internal error"}
    assert "Out of range float values" in caplog.text
    assert (await api.get("/v1/peers")).status_code == 200


# Reloading


async def test_reload(api: httpx.AsyncClient, daemon: FakeDaemon) -> None:
    answer = await api.post("/v1/reload")
    assert answer.status_code == 200
    assert answer.json() == STATUS["config"]
    assert daemon.reloads == 1


async def test_a_refused_configuration_is_reported_line_by_line(
    api: httpx.AsyncClient, daemon: FakeDaemon
) -> None:
    daemon.reload_error = ConfigError(["drld.toml: a: missing", "drld.toml: b: missing"])
    answer = await api.post("/v1/reload")
    assert answer.status_code == 422
    assert answer.json() == {"problems": ["drld.toml: a: missing", "drld.toml: b: missing"]}


async def test_a_host_that_refuses_is_reported(api: httpx.AsyncClient, daemon: FakeDaemon) -> None:
    daemon.reload_error = DatapathError("iptables: no such chain")
    answer = await api.post("/v1/reload")
    assert answer.status_code == 500
    assert answer.json() == {"error": "iptables: no such chain"}


async def test_reloads_do_not_overlap(
    api: httpx.AsyncClient, daemon: FakeDaemon, path: Path
) -> None:
    async with client(path) as other, trio.open_nursery() as nursery:
        nursery.start_soon(api.post, "/v1/reload")
        nursery.start_soon(other.post, "/v1/reload")
    assert daemon.reloads == 2  # The fake asserts that one ends before the next begins.


# Requests that are too large, or no requests


async def test_small_bodies_are_ignored(api: httpx.AsyncClient) -> None:
    assert (await api.post("/v1/reload", content=b"x" * 4096)).status_code == 200
    assert (await api.post("/v1/reload", json={})).status_code == 200


async def test_a_large_body_is_refused_unread(api: httpx.AsyncClient, daemon: FakeDaemon) -> None:
    answer = await api.post("/v1/reload", content=b"x" * 4097)
    assert answer.status_code == 413
    assert answer.json() == {"error": "the body of a request is limited to 4096 bytes"}
    assert daemon.reloads == 0


async def test_a_body_of_unknown_length_is_refused(
    api: httpx.AsyncClient, daemon: FakeDaemon
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"x"

    assert (await api.post("/v1/reload", content=chunks())).status_code == 413
    assert daemon.reloads == 0


async def exchange(path: Path, request: bytes) -> bytes:
    """Send raw bytes, and return all that comes until the server closes."""
    stream = await trio.open_unix_socket(str(path))
    answer = b""
    with trio.fail_after(10):
        async with stream:
            # A server that has read enough closes, and may do so before all is sent.
            with suppress(trio.BrokenResourceError):
                await stream.send_all(request)
                await stream.send_eof()
                async for chunk in stream:
                    answer += chunk
    return answer


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"",
        b"\0" * 100,
        b"GET\r\n\r\n",
        b"GET /v1/status HTTP/1.1\r\n\r\n",
        b"GET /v1/status HTTP/1.1\r\nHost: drld\r\nX: " + b"x" * 1_000_000 + b"\r\n\r\n",
        b"POST /v1/reload HTTP/1.1\r\nHost: drld\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnonsense",
        b"GET /v1/status HTTP/1.1\r\nHost: drld\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
    ],
    ids=["nothing", "zeros", "no version", "no host", "long", "huge", "http2", "websocket"],
)
async def test_strange_requests_harm_nobody_else(
    api: httpx.AsyncClient, path: Path, request_bytes: bytes
) -> None:
    answer = await exchange(path, request_bytes)
    assert b" 200 " not in answer.partition(b"\r\n")[0]
    assert (await api.get("/v1/status")).status_code == 200


async def test_connections_are_bounded(
    daemon: FakeDaemon, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 2)
    async with served(daemon, path), client(path) as one, client(path) as two:
        await one.get("/v1/status")
        await two.get("/v1/status")
        assert await exchange(path, b"") == b""
        async with client(path) as three:
            with pytest.raises(httpx.TransportError):
                await three.get("/v1/status")
        assert (await one.get("/v1/status")).status_code == 200


async def test_a_client_that_left_does_not_count(
    daemon: FakeDaemon, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 2)
    async with served(daemon, path):
        for _ in range(5):
            async with client(path) as http_client:
                assert (await http_client.get("/v1/status")).status_code == 200
            await exchange(path, b"")
            await wait_all_tasks_blocked()


# Traces


async def test_a_trace_is_one_object_a_line_as_ticks_come(
    api: httpx.AsyncClient, daemon: FakeDaemon
) -> None:
    with trio.fail_after(10):
        async with api.stream("GET", "/v1/limits/b/trace") as answer:
            assert answer.headers["content-type"] == "application/x-ndjson"
            lines = answer.aiter_lines()
            for number in range(3):
                daemon.tick("b", [number])
                assert json.loads(await anext(lines)) == {**record("b", number), "number": number}
            daemon.hub.retain([])
            assert [line async for line in lines] == []


async def test_a_reader_that_leaves_is_forgotten(
    api: httpx.AsyncClient, daemon: FakeDaemon
) -> None:
    with trio.fail_after(10):
        async with api.stream("GET", "/v1/limits/b/trace"):
            await daemon.has_readers(1)
        await daemon.has_readers(0)


async def test_a_trace_ends_with_its_limit(api: httpx.AsyncClient, daemon: FakeDaemon) -> None:
    daemon.ticks_for_readers = 1
    with trio.fail_after(10):
        async with api.stream("GET", "/v1/limits/b/trace") as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            daemon.hub.retain(["customer-a"])
            assert [line async for line in lines] == []


async def stuck_reader(path: Path, limit: str) -> trio.SocketStream:
    """Ask for a trace, and read nothing of it."""
    stream = await trio.open_unix_socket(str(path))
    await stream.send_all(f"GET /v1/limits/{limit}/trace HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return stream


async def fill(daemon: FakeDaemon, limit: str) -> int:
    """Publish until the reader's socket and buffer are full, and 10 more; return how many."""
    (reader,) = daemon.hub._readers[limit]
    for number in range(100_000):
        daemon.tick(limit, [number])
        if number % (TRACE_BUFFER // 2) == 0:
            await wait_all_tasks_blocked()
            if reader.send.statistics().current_buffer_used == TRACE_BUFFER:
                daemon.tick(limit, range(number + 1, number + 11))
                return number + 11
    raise AssertionError("what nobody reads went somewhere")


async def test_a_slow_reader_stalls_nobody_and_misses_the_oldest(
    api: httpx.AsyncClient, daemon: FakeDaemon, path: Path
) -> None:
    with trio.fail_after(30):
        async with await stuck_reader(path, "b") as stream:
            await daemon.has_readers(1)
            ticks = await fill(daemon, "b")
            assert (await api.get("/v1/status")).status_code == 200
            received = b""
            while f'"flows":{ticks - 1},'.encode() not in received:
                received += await stream.receive_some()
    lines = [
        json.loads(line)
        for line in received.replace(b"\r\n", b"\n").split(b"\n")
        if line.startswith(b"{") and line.endswith(b"}")
    ]
    numbers = [line["flows"] for line in lines]
    assert numbers[-TRACE_BUFFER:] == list(range(ticks - TRACE_BUFFER, ticks))
    assert numbers[:-TRACE_BUFFER] == list(range(len(numbers) - TRACE_BUFFER))
    assert len(numbers) <= ticks - 10
    assert numbers == [line["number"] for line in lines]


async def test_the_server_stops_with_traces_open_and_stuck(daemon: FakeDaemon, path: Path) -> None:
    stopped = trio.Event()
    scope = trio.CancelScope()

    async def serve_until_cancelled(
        *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        with scope:
            await serve(daemon, path, task_status=task_status)
        stopped.set()

    async with trio.open_nursery() as nursery:
        await nursery.start(serve_until_cancelled)
        reading = await stuck_reader(path, "customer-a")
        stuck = await stuck_reader(path, "b")
        await daemon.has_readers(2)
        await fill(daemon, "b")
        scope.cancel()
        with trio.move_on_after(5):
            await stopped.wait()
        stopped_by_itself = stopped.is_set()
        # Should it not have stopped, this lets it, and the test fails instead of hanging.
        await reading.aclose()
        await stuck.aclose()
    assert stopped_by_itself
    assert daemon.readers == 0
    assert not path.exists()


def test_records_are_made_only_for_readers() -> None:
    def fail() -> None:
        raise AssertionError("nobody reads")

    TraceHub().publish("a", fail)  # type: ignore[arg-type]  # never called


async def test_readers_of_one_limit_are_independent() -> None:
    hub = TraceHub()
    async with hub.subscribe("a") as slow, hub.subscribe("a") as fast, hub.subscribe("b") as other:
        for number in range(TRACE_BUFFER + 5):
            hub.publish("a", lambda: record("a", number))  # noqa: B023 -- called at once
            assert (await fast.receive())["flows"] == number
        first = slow.receive_nowait()
        assert (first["flows"], first["number"]) == (5, 5)
        with pytest.raises(trio.WouldBlock):
            other.receive_nowait()


async def test_a_reader_that_closed_its_end_is_no_error() -> None:
    hub = TraceHub()
    async with hub.subscribe("a") as records:
        records.close()
        for number in range(TRACE_BUFFER + 2):
            hub.publish("a", lambda: record("a", number))  # noqa: B023 -- called at once


# The socket


async def test_the_socket_is_for_owner_and_group_and_goes_with_the_server(
    daemon: FakeDaemon, tmp_path: Path
) -> None:
    path = tmp_path / "a" / "b" / "lim1.sock"
    async with served(daemon, path):
        mode = path.stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o660
    assert not path.exists()


async def test_a_stale_socket_is_replaced(daemon: FakeDaemon, path: Path) -> None:
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    assert path.is_socket()
    async with served(daemon, path), client(path) as http_client:
        assert (await http_client.get("/v1/status")).status_code == 200


async def test_a_live_daemon_is_not_pushed_aside(daemon: FakeDaemon, path: Path) -> None:
    async with served(daemon, path), client(path) as http_client:
        with pytest.raises(ConfigError) as caught:
            await serve(FakeDaemon(), path)
        assert caught.value.problems == [
            f"limiter.control: {path}: another daemon answers there; stop it, or use another path"
        ]
        assert (await http_client.get("/v1/status")).status_code == 200


def make_file(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("precious")


def make_link(path: Path) -> None:
    path.parent.mkdir()
    path.symlink_to("/nonexistent")


@pytest.mark.parametrize("make", [make_file, make_link, lambda path: path.mkdir(parents=True)])
async def test_what_is_no_socket_is_left_alone(
    daemon: FakeDaemon, path: Path, make: Callable[[Path], None]
) -> None:
    make(path)
    with pytest.raises(ConfigError) as caught:
        await serve(daemon, path)
    assert caught.value.problems == [f"limiter.control: {path}: is there already, and is no socket"]
    assert path.exists() or path.is_symlink()


async def test_a_path_that_cannot_be_is_a_clear_error(daemon: FakeDaemon, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"^limiter\.control: .*: (Not a directory|File exists)"):
        await serve(daemon, tmp_path / "file" / "lim1.sock")
    with pytest.raises(ConfigError, match="path too long"):
        await serve(daemon, tmp_path / ("x" * 108))


async def test_a_successors_socket_is_left_alone(daemon: FakeDaemon, path: Path) -> None:
    async with served(daemon, path):
        path.unlink()
        with socket.socket(socket.AF_UNIX) as successor:
            successor.bind(str(path))
    assert path.is_socket()
