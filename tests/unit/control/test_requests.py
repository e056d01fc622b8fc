"""Requests that are too large, invalid, or too many at a time harm no other client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
import trio

from tests.control_fake import FakeDaemon, served


async def test_small_bodies_are_ignored(api: httpx.AsyncClient) -> None:
    assert (await api.post("/v1/reload", content=b"x" * 65_536)).status_code == 200
    assert (await api.post("/v1/reload", json={})).status_code == 200


async def test_a_large_body_is_refused_unread(api: httpx.AsyncClient, daemon: FakeDaemon) -> None:
    answer = await api.post("/v1/reload", content=b"x" * 65_537)
    assert answer.status_code == 413
    what = "the body of a request has at most 65536 bytes, and a Content-Length"
    assert answer.json() == {"error": what}
    assert daemon.reloads == 0


async def test_a_body_of_unknown_length_is_refused(
    api: httpx.AsyncClient, daemon: FakeDaemon
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"x"

    answer = await api.post("/v1/reload", content=chunks())
    assert answer.status_code == 413
    assert "Content-Length" in answer.json()["error"], "the mistake is not its size"
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
    ],
    ids=["nothing", "zeros", "no version", "no host", "long", "huge", "http2"],
)
async def test_strange_requests_harm_no_other_client(
    api: httpx.AsyncClient, path: Path, request_bytes: bytes
) -> None:
    answer = await exchange(path, request_bytes)
    assert b" 200 " not in answer.partition(b"\r\n")[0]
    assert (await api.get("/v1/status")).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        b"Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n",
        b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\n",
    ],
    ids=["websocket", "http2"],
)
async def test_there_is_no_other_protocol(daemon: FakeDaemon, path: Path, headers: bytes) -> None:
    request = b"GET /v1/status HTTP/1.1\r\nHost: drld\r\n" + headers + b"\r\n"
    async with served(daemon, path):
        stream = await trio.open_unix_socket(str(path))
        with trio.fail_after(10):
            async with stream:
                await stream.send_all(request)
                assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("size", [3900, 4200, 9000, 70_000])
async def test_the_head_of_a_request_is_bounded(daemon: FakeDaemon, path: Path, size: int) -> None:
    request = b"GET /v1/status HTTP/1.1\r\nHost: drld\r\nX: " + b"x" * size + b"\r\n\r\n"
    async with served(daemon, path):
        stream = await trio.open_unix_socket(str(path))
        with trio.fail_after(10):
            async with stream:
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(request)
                status = (await stream.receive_some()).split(b" ")[1]
    assert status == (b"200" if size < 4000 else b"431")


STATUS = b"GET /v1/status HTTP/1.1\r\nHost: drld\r\n\r\n"
LAST = STATUS.replace(b"drld\r\n", b"drld\r\nConnection: close\r\n")


async def whole_answer(path: Path, request: bytes) -> bytes:
    """All that the server sends until it closes; the client stays."""
    with trio.fail_after(10):
        async with await trio.open_unix_socket(str(path)) as stream:
            await stream.send_all(request)
            return b"".join([bytes(piece) async for piece in stream])


async def test_requests_sent_ahead_are_answered_in_order(daemon: FakeDaemon, path: Path) -> None:
    async with served(daemon, path):
        reload = b"POST /v1/reload HTTP/1.1\r\nHost: drld\r\nContent-Length: 3\r\n\r\nabc"
        answer = await whole_answer(path, STATUS * 3 + reload + LAST)
    assert answer.count(b"HTTP/1.1 200 ") == 5
    assert [b'"loaded_at"' in part for part in answer.split(b"HTTP/1.1 ")[1:]] == [True] * 5
    assert daemon.reloads == 1


async def test_an_answer_to_head_has_no_body(daemon: FakeDaemon, path: Path) -> None:
    async with served(daemon, path):
        answer = await whole_answer(path, LAST.replace(b"GET", b"HEAD"))
        missing = await whole_answer(path, LAST.replace(b"GET /v1/status", b"HEAD /v1/nothing"))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert missing.startswith(b"HTTP/1.1 404 ")
    assert answer.endswith(b"\r\n\r\n")
    assert missing.endswith(b"\r\n\r\n")


async def test_a_client_that_waits_with_its_body_is_told_to_continue(
    daemon: FakeDaemon, path: Path
) -> None:
    head = b"POST /v1/reload HTTP/1.1\r\nHost: drld\r\nExpect: 100-continue\r\nContent-Length: "
    async with served(daemon, path):
        async with await trio.open_unix_socket(str(path)) as stream:
            with trio.fail_after(10):
                await stream.send_all(head + b"2\r\n\r\n")
                assert (await stream.receive_some()).startswith(b"HTTP/1.1 100 ")
                await stream.send_all(b"{}")
                assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 ")
        refusal = await whole_answer(path, head + b"70000\r\n\r\n")
    assert refusal.startswith(b"HTTP/1.1 413 ")
    assert daemon.reloads == 1


async def test_an_old_client_gets_a_list_until_the_connection_ends(
    daemon: FakeDaemon, path: Path
) -> None:
    async with served(daemon, path):
        answer = await whole_answer(path, b"GET /v1/peers HTTP/1.0\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert len(json.loads(body)) == 2


async def test_a_bug_is_logged_and_ends_one_connection(
    daemon: FakeDaemon, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def reload(by: object) -> None:
        raise RuntimeError("a bug")

    daemon.reload = reload  # type: ignore[method-assign]  # a slow one
    async with served(daemon, path):
        answer = await whole_answer(path, b"POST /v1/reload HTTP/1.1\r\nHost: drld\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 500 ")
        assert answer.endswith(b'{"error":"internal error"}')
        assert b" 200 " in await whole_answer(path, LAST)
    (bug,) = (entry for entry in caplog.records if entry.levelname == "ERROR")
    assert bug.message == "a control connection ended with an error"
