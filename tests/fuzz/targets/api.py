"""The control API: whatever a client sends, it is answered in HTTP, no bug shows, and it ends.

The client sends its bytes in one piece or in many, says nothing more and stays. By the server's own
clock the connection then ends within the time that a request has, unless a trace is being read.
"""

from __future__ import annotations

import functools
import logging
import re

import trio
from trio.testing import MockClock, memory_stream_pair

from drld.control import server
from drld.control.app import make_app
from drld.control.connection import REQUEST_S
from drld.control.credentials import Credentials
from drld.control.turns import Turns
from tests.control_fake import CONFIGURATION, FakeDaemon
from tests.fuzz.targets.base import Target

STATUSES = {200, 400, 404, 405, 409, 413, 422, 431, 501, 505}
PATIENCE_S = 10 * REQUEST_S
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
_ENOUGH = 1 << 20


def check(data: bytes) -> bool:
    """The first byte says in pieces of how many bytes the rest is sent; 0 is all at once."""
    try:
        return _check(data)
    except BaseException:
        serving.cache_clear()  # Who knows what state it is in.
        raise


def _check(data: bytes) -> bool:
    daemon, _ = serving()
    daemon.ring = daemon.configured
    daemon.configuration = CONFIGURATION
    logged: list[str] = []
    handler = _Remember(logged)
    logger = logging.getLogger("drld.control")
    logger.addHandler(handler)
    propagates, logger.propagate = logger.propagate, False
    try:
        answer, seconds = trio.run(
            converse, data[1:], data[0] if data else 0, clock=MockClock(autojump_threshold=0)
        )
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates
    assert not logged, logged
    assert daemon.readers == 0
    if not answer:
        return False
    found = _STATUS.match(answer)
    assert found, answer[:100]
    assert int(found[1]) in STATUSES, answer[:100]
    reads_trace = b"application/x-ndjson" in answer
    assert reads_trace or seconds <= 2 * REQUEST_S * (1 + answer.count(b"HTTP/1.1 ")), seconds
    return found[1] == b"200"


@functools.cache
def serving() -> tuple[FakeDaemon, server.Connections]:
    """One for all inputs: to make it takes longer than most of them."""
    daemon = FakeDaemon()
    daemon.ticks_for_readers = 3
    turns = Turns()
    return daemon, server.Connections(make_app(daemon, turns), turns)


class _Remember(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(logging.Formatter().format(record))


async def converse(
    data: bytes,
    piece: int,
    connections: server.Connections | None = None,
    peer: object = Credentials(1, 0, 0),
) -> tuple[bytes, float]:
    """The server's answer, and the time for which it held the connection."""
    connections = connections or serving()[1]
    ours, theirs = memory_stream_pair()
    answer = bytearray()
    began = trio.current_time()

    async def read() -> None:
        async for chunk in ours:
            answer.extend(chunk)
            assert len(answer) < _ENOUGH

    async with trio.open_nursery() as nursery:
        nursery.start_soon(connections.serve, theirs, peer)
        with trio.move_on_after(PATIENCE_S):
            async with trio.open_nursery() as reading:
                reading.start_soon(read)
                try:
                    size = piece or max(len(data), 1)
                    for start in range(0, len(data), size):
                        await ours.send_all(data[start : start + size])
                        await trio.testing.wait_all_tasks_blocked()
                except trio.BrokenResourceError:
                    pass
        seconds = trio.current_time() - began
        await ours.aclose()
        with trio.fail_after(1):
            while nursery.child_tasks:
                await trio.testing.wait_all_tasks_blocked()
    return bytes(answer), seconds


def seeds() -> list[bytes]:
    requests = [
        b"GET /v1/status HTTP/1.1\r\nHost: drld\r\n\r\n",
        b"HEAD /v1/limits HTTP/1.1\r\nHost: drld\r\n\r\n",
        b"GET /v1/limits/b HTTP/1.1\r\nHost: drld\r\nConnection: close\r\n\r\n",
        b"GET /v1/limits/customer-a/trace HTTP/1.1\r\nHost: drld\r\n\r\n",
        b"GET /v1/peers HTTP/1.0\r\n\r\n",
        b"POST /v1/reload HTTP/1.1\r\nHost: drld\r\nContent-Length: 2\r\n\r\n{}",
        b"GET /v1/keys HTTP/1.1\r\nHost: drld\r\n\r\n",
        _post(b"/v1/limits", b'{"limits":[{"id":7,"name":"b","rate":"1mbit","match":{"in":"a"}}]}'),
        _post(b"/v1/limits/customer-a/set", b'{"set":{"rate":"2mbit","mode":"pause"},"save":true}'),
        _post(b"/v1/limits/1/remove", b"{}"),
        b"GET /v1/config HTTP/1.1\r\nHost: drld\r\n\r\n",
        b"POST /v1/keys/2/install HTTP/1.1\r\nHost: drld\r\nContent-Length: 42\r\n\r\n"
        b'{"key":"000102030405060708090a0b0c0d0e0f"}',
    ]
    whole = [b"\0" + request for request in requests]
    return [*whole, b"\x07" + requests[-1], b"\0" + b"".join(requests)]


def _post(path: bytes, body: bytes) -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: drld\r\nContent-Length: %d\r\n\r\n%b" % (
        path, len(body), body,
    )  # fmt: skip


WORDS = (
    *(
        b"GET ",
        b"POST ",
        b"HEAD ",
        b"OPTIONS ",
        b"CONNECT ",
        b"PUT ",
        b"DELETE ",
        b"PRI * HTTP/2.0",
    ),
    *(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", b"\r\n", b"\r\n\r\n", b"SM\r\n\r\n", b"Host: drld\r\n"),
    *(b"/v1/status", b"/v1/limits", b"/v1/limits/b", b"/v1/limits/b/trace", b"/v1/peers"),
    *(b"/v1/limits?sort=", b"demand", b"&name=", b"&skip=1", b"&count=2"),
    *(b"/v1/reload", b"*", b"http://drld/", b"%2f", b"%00", b"%ff", b"?a=b", b"#", b"/.."),
    *(b"Content-Length: ", b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n"),
    *(b"Connection: close\r\n", b"Connection: Upgrade\r\n", b"Upgrade: websocket\r\n"),
    *(b"Upgrade: h2c\r\n", b"HTTP2-Settings: AAMAAABk\r\n", b"Sec-WebSocket-Version: 13\r\n"),
    *(b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n", b"5\r\nabcde\r\n", b"0\r\n\r\n"),
    *(b"65536", b"65537", b"-1", b"\x00", b"\xff", b"{}", b'{"key":"', b'"}', b"\\ud800"),
    *(b"null", b"AA==", b"/v1/config", b"/v1/limits/1/", b"set", b'{"set":{', b'{"limits":['),
    *(b'"save":true', b'"id":7', b'"remove":true', b'"rate":"2mbit"', b'"match":{"in":"a"}'),
    *(b'"name":"customer-a"', b'"mode":"pause"', b"1e999", b"NaN", b"/v1/keys", b"/v1/keys/1/"),
    *(b"install", b"use", b"remove", b"9" * 100),
)

TARGET = Target(check, seeds, words=WORDS, max_bytes=1500)
