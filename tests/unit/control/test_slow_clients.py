"""Clients that take their time: each has so much of it, and no more."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
import trio

from drld.control.connection import REQUEST_S, WRITE_S
from tests.control_fake import FakeDaemon, many_limits, served

HEAD = b"POST /v1/reload HTTP/1.1\r\nHost: drld\r\nContent-Length: 20\r\n\r\n"
STATUS = b"GET /v1/status HTTP/1.1\r\nHost: drld\r\n\r\n"
TRACE = b"GET /v1/limits/b/trace HTTP/1.1\r\nHost: drld\r\n\r\n"


async def dribble(stream: trio.SocketStream, data: bytes, pause_s: float) -> None:
    with suppress(trio.BrokenResourceError):
        for byte in data:
            await stream.send_all(bytes([byte]))
            await trio.sleep(pause_s)


async def lasts(path: Path, sent: bytes, pause_s: float) -> tuple[float, bytes]:
    """The duration of a connection whose client sends this byte by byte, s, and the answer."""
    began = trio.current_time()
    answer = b""
    async with await trio.open_unix_socket(str(path)) as stream, trio.open_nursery() as nursery:
        nursery.start_soon(dribble, stream, sent, pause_s)
        with suppress(trio.BrokenResourceError), trio.move_on_after(1000):
            async for chunk in stream:
                answer += chunk
        nursery.cancel_scope.cancel()
    return trio.current_time() - began, answer


@pytest.mark.parametrize(
    ("sent", "pause_s"),
    [
        (b"", 0),
        (b"G", 0),
        (HEAD, REQUEST_S / len(HEAD) * 1.1),
        (HEAD[:-2], 0),
        (HEAD, 0),
        (HEAD + bytes(19), 0),
        (HEAD + bytes(20), REQUEST_S / len(HEAD)),
    ],
    ids=["nothing", "a byte", "slow head", "half a head", "no body", "half a body", "slow body"],
)
async def test_a_request_has_so_much_time(
    daemon: FakeDaemon, path: Path, autojump_clock: object, sent: bytes, pause_s: float
) -> None:
    async with served(daemon, path):
        seconds, answer = await lasts(path, sent, pause_s)
    assert seconds == pytest.approx(REQUEST_S)
    assert answer == b""
    assert daemon.reloads == 0


async def test_each_request_of_a_connection_has_that_time(
    daemon: FakeDaemon, path: Path, autojump_clock: object
) -> None:
    async with served(daemon, path), await trio.open_unix_socket(str(path)) as stream:
        for _ in range(4):
            await trio.sleep(REQUEST_S * 0.9)
            await stream.send_all(STATUS)
            answer = b""
            while not answer.endswith(b"}"):
                answer += await stream.receive_some()
            assert answer.startswith(b"HTTP/1.1 200 ")
        last = trio.current_time()
        with trio.fail_after(1000):
            while await stream.receive_some():
                pass
        assert trio.current_time() - last == pytest.approx(REQUEST_S)


async def test_a_body_in_single_bytes_is_read(
    daemon: FakeDaemon, path: Path, autojump_clock: object
) -> None:
    async with served(daemon, path):
        _, answer = await lasts(path, HEAD + bytes(20), 0.001)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert daemon.reloads == 1


async def test_a_client_that_takes_no_answer_is_left(
    daemon: FakeDaemon, path: Path, autojump_clock: object
) -> None:
    made = 0

    def limits(_: object) -> object:
        nonlocal made
        for report in many_limits(100_000):
            made += 1
            yield report

    daemon.limits = limits  # type: ignore[method-assign, assignment]  # a slow one
    async with served(daemon, path), await trio.open_unix_socket(str(path)) as stream:
        await stream.send_all(STATUS.replace(b"status", b"limits"))
        await trio.sleep(WRITE_S * 0.9)
        so_far = made
        await trio.sleep(WRITE_S * 0.2)
        with trio.fail_after(10), suppress(trio.BrokenResourceError):
            while await stream.receive_some():
                pass
    assert 0 < made == so_far < 10_000


async def test_a_trace_without_news_goes_on(
    daemon: FakeDaemon, path: Path, autojump_clock: object
) -> None:
    async with served(daemon, path), await trio.open_unix_socket(str(path)) as stream:
        await stream.send_all(TRACE)
        await daemon.has_readers(1)
        await trio.sleep(3600)
        daemon.tick("b", [1])
        with trio.fail_after(10):
            answer = b""
            while b'"number":0' not in answer:
                answer += await stream.receive_some()


async def test_work_for_a_client_ends_when_the_client_leaves(
    daemon: FakeDaemon, path: Path
) -> None:
    begun, ended = trio.Event(), trio.Event()

    async def reload(by: object) -> None:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    daemon.reload = reload  # type: ignore[method-assign]  # a slow one
    with trio.fail_after(10):
        async with served(daemon, path):
            async with await trio.open_unix_socket(str(path)) as stream:
                await stream.send_all(HEAD + bytes(20))
                await begun.wait()
            await ended.wait()


async def test_a_client_may_leave_before_its_answer_without_an_error_in_the_log(
    daemon: FakeDaemon, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with trio.fail_after(10):
        async with served(daemon, path):
            for _ in range(20):
                for request in (STATUS, HEAD + bytes(20)):
                    async with await trio.open_unix_socket(str(path)) as stream:
                        await stream.send_all(request)
            # By then the server has dealt with all of them.
            async with await trio.open_unix_socket(str(path)) as stream:
                await stream.send_all(STATUS)
                assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
