"""A web server, as a process of the testbed: hypercorn, serving objects of any size.

`GET /object/12345` answers with 12,345 bytes. Its connections are TCP New Reno: they inherit the
listener's congestion control, which is checked; selective acknowledgements are the client's to
check.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from testbed import child
from testbed.traffic import CONGESTION_CONTROL, set_congestion

_BACKLOG = 4096
_CHUNK = bytes(64 * 1024)
_IDLE_S = 600.0
"""Longest wait for a request, which a limiter may hold up."""


async def _object(request: Request) -> StreamingResponse:
    size: int = request.path_params["size"]
    return StreamingResponse(
        _body(size),
        headers={"content-length": str(size)},
        media_type="application/octet-stream",
    )


async def _body(size: int) -> AsyncIterator[bytes]:
    whole, rest = divmod(size, len(_CHUNK))
    for _ in range(whole):
        yield _CHUNK
    if rest:
        yield _CHUNK[:rest]


def _listener(address: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    set_congestion(listener, CONGESTION_CONTROL)
    listener.bind((address, port))
    listener.listen(_BACKLOG)
    return listener


def work() -> None:
    """Serve until dismissed."""
    job = child.receive()
    listener = _listener(job["address"], job["port"])
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.backlog = _BACKLOG
    config.keep_alive_timeout = _IDLE_S
    config.loglevel = "warning"
    application = Starlette(routes=[Route("/object/{size:int}", _object)])

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(serve, application, config)
            child.send(ready=True)

    trio.run(run)


if __name__ == "__main__":
    child.main(work)
