"""The clients when calls are cancelled or late, or a connection ends between their parts."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from drld.client import Answer, Client, Question, on_asyncio, on_threads, on_trio
from drld.client.protocol import check_codec
from drld.client.protocol.exchange import CHUNK
from drld.client.protocol.greeting import VERSION, welcome

from .limiter import limiter


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "requests.sock"


def test_tasks_of_asyncio_write_to_no_connection_that_has_failed(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def ask() -> None:
        async with on_asyncio.Client(str(path)) as client:
            client._timeout_s = 60
            with limiter(path):
                await client.check("api")
            with limiter(path):
                answers = await asyncio.gather(*[client.check("api") for _ in range(20)])
                assert not any(it.degraded for it in answers)

    asyncio.run(ask())
    assert caplog.messages == []


def test_a_call_of_asyncio_goes_on_at_once_if_another_ends_the_connection_between_parts(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask() -> None:
        async with on_asyncio.Client(str(path), timeout_s=60) as client:
            await client.check("api")
            connection = client._lines.here()._connection
            assert connection is not None
            receive = connection.data_received

            def end_behind_a_part(data: bytes) -> None:
                receive(data)
                if not any(exchange.missing for exchange in connection._waiting):
                    connection.end("another call has had no answer in time")

            monkeypatch.setattr(connection, "data_received", end_behind_a_part)
            answers = await asyncio.wait_for(client.ask([Question("api")] * 2 * CHUNK), 30)
            assert not any(it.degraded for it in answers)
            assert client._lines.here()._connection is not connection

    with limiter(path):
        asyncio.run(ask())


def test_a_call_that_is_cancelled_within_a_frame_closes_the_connection(path: Path) -> None:
    # More than the buffers of a socket take.
    questions = [Question("api", {"user": "x" * 250})] * 1024

    async def ask() -> None:
        async with on_trio.Client(str(path), timeout_s=60) as client:
            with trio.fail_after(30):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(client.ask, questions)
                    await trio.testing.wait_all_tasks_blocked(0.01)
                    nursery.cancel_scope.cancel()
                with trio.socket.from_stdlib_socket(silent.accept()[0]) as limiter_end:
                    while await limiter_end.recv(1 << 20):
                        pass

    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        trio.run(ask)


class SlowLimiter:
    """One that greets its first client, and answers its first three questions, when told to."""

    def __init__(self, path: Path) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()

    def answer(self) -> None:
        with self.listener, self.listener.accept()[0] as client:
            records = [check_codec.answer_record(it, check_codec.ADMITTED, b"") for it in range(3)]
            answers = check_codec.answer_frame([(it, b"") for it in records])
            client.sendall(welcome(VERSION) + answers)


def test_a_call_of_trio_is_answered_although_another_is_cancelled_within_its_frame(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both wait for the first connection. The other call has sent nothing of its greeting."""
    answers: list[Answer] = []
    client = on_trio.Client(str(path), timeout_s=60)
    connected = client._stream

    async def stuck() -> Any:
        stream: Any = await connected()
        monkeypatch.setattr(client, "_stream", connected)
        monkeypatch.setattr(stream, "send_all", lambda _: trio.sleep_forever())
        return stream

    async def check() -> None:
        answers.append(await client.check("api"))

    async def main() -> None:
        monkeypatch.setattr(client, "_stream", stuck)
        async with client, trio.open_nursery() as others:
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(check)
                    await trio.testing.wait_all_tasks_blocked()
                    others.start_soon(check)
                    await trio.testing.wait_all_tasks_blocked()
                    scope.cancel()

    with limiter(path):
        trio.run(main)
    assert [it.degraded for it in answers] == [False]
    assert client.counts["failures"] == 0


def test_answers_that_have_come_count_although_the_event_loop_of_trio_stood_still(
    path: Path,
) -> None:
    clock, limiter_, answers = trio.testing.MockClock(), SlowLimiter(path), list[Answer]()

    async def check(client: on_trio.Client) -> None:
        answers.append(await client.check("api"))

    async def ask() -> None:
        async with on_trio.Client(str(path)) as client, trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(check, client)
            await trio.testing.wait_all_tasks_blocked()
            limiter_.answer()
            clock.jump(1)

    trio.run(ask, clock=clock)
    assert [it.degraded for it in answers] == [False] * 3


def test_answers_that_have_come_count_although_the_event_loop_of_asyncio_stood_still(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limiter_ = SlowLimiter(path)

    async def ask() -> None:
        async with on_asyncio.Client(str(path)) as client:
            asked = [asyncio.ensure_future(client.check("api")) for _ in range(3)]
            line = client._lines.here()
            while line._connection is None or len(line._connection._waiting) < 3:
                await asyncio.sleep(0)
            limiter_.answer()
            loop = asyncio.get_running_loop()
            monkeypatch.setattr(loop, "time", lambda: time.monotonic() + 1)
            assert [(await it).degraded for it in asked] == [False] * 3

    asyncio.run(ask())


def test_answers_that_have_come_count_although_the_thread_stood_still(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limiter_, send = SlowLimiter(path), on_threads._Connection.send

    def stand_still(connection: on_threads._Connection, data: bytes, deadline_ns: int) -> None:
        send(connection, data, deadline_ns)
        limiter_.answer()
        monkeypatch.setattr(on_threads, "monotonic_ns", lambda: deadline_ns + 1)

    monkeypatch.setattr(on_threads._Connection, "send", stand_still)
    with Client(str(path), timeout_s=60) as client:
        assert [it.degraded for it in client.ask([Question("api")] * 3)] == [False] * 3
