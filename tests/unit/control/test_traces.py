"""Traces of a limit, and readers of them that are slow or leave."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from drld.control.server import serve
from drld.control.trace import TRACE_BUFFER, TraceHub
from tests.control_fake import FakeDaemon, record


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
    await stream.send_all(f"GET /v1/limits/{limit}/trace HTTP/1.1\r\nHost: drld\r\n\r\n".encode())
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
    raise AssertionError("records without a reader went somewhere")


async def test_a_slow_reader_stalls_no_other_and_misses_the_oldest_records(
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
        raise AssertionError("no client reads")

    TraceHub().publish("a", fail)  # type: ignore[arg-type]  # nothing calls it


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
