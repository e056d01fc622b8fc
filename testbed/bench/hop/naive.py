"""A proxy as one writes it first: `python -m testbed.bench.hop.naive LISTEN SERVER`, two ports.

Two tasks for each connection copy bytes, in trio. It knows no messages and no limits.
"""

from __future__ import annotations

import sys
from contextlib import suppress

import trio

_READ_BYTES = 1 << 16


async def _copy(source: trio.SocketStream, sink: trio.SocketStream) -> None:
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        while data := await source.receive_some(_READ_BYTES):
            await sink.send_all(data)
        await sink.send_eof()


async def main(listen: int, server: int) -> None:
    """Serve until killed."""

    async def serve(client: trio.SocketStream) -> None:
        broker = await trio.open_tcp_stream("127.0.0.1", server)
        async with broker, trio.open_nursery() as nursery:
            nursery.start_soon(_copy, client, broker)
            nursery.start_soon(_copy, broker, client)

    await trio.serve_tcp(serve, listen, host="127.0.0.1")


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]), int(sys.argv[2]))
