"""A daemon that is late answers clients that were not."""

from __future__ import annotations

import trio
from starlette.types import Receive, Scope, Send
from trio.testing import memory_stream_pair

from drld.control.connection import REQUEST_S, Connection
from drld.control.turns import Turns


class LateTurns(Turns):
    async def wait(self) -> None:
        await trio.sleep(REQUEST_S + 1)


async def app(_: Scope, __: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"here"})


async def test_a_whole_request_is_answered_however_late_the_turn(autojump_clock: object) -> None:
    client, server = memory_stream_pair()
    await client.send_all(b"GET / HTTP/1.1\r\nhost: drld\r\n\r\n")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Connection(app, LateTurns(), server, None).serve)
        with trio.fail_after(60):
            assert (await client.receive_some(4096)).startswith(b"HTTP/1.1 200")
        await client.aclose()
