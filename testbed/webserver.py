"""A web server, as a process of the testbed: it serves objects of any size.

`GET /object/12345` answers with 12,345 bytes, and the connection ends. Connections are TCP New
Reno: they inherit the listener's congestion control, which is checked; selective acknowledgements
are the client's to check.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from email.utils import formatdate

import h11
import trio

from testbed import child
from testbed.traffic import CONGESTION_CONTROL, set_congestion

_BACKLOG = 4096
_READ = 1 << 16
_CHUNK = memoryview(bytes(64 * 1024))


def _head(size: int) -> h11.Response:
    """The head of an answer, of about 160 bytes as the simulator's (`testbed.sim.web`)."""
    headers = [
        ("content-length", str(size)), ("content-type", "application/octet-stream"),
        ("date", formatdate(usegmt=True)), ("server", "drld-testbed"), ("connection", "close"),
    ]  # fmt: skip
    return h11.Response(status_code=200, headers=headers)


async def _serve(stream: trio.SocketStream) -> None:
    """Answer the request of a connection; a client may break it off."""
    http = h11.Connection(h11.SERVER)
    with suppress(trio.BrokenResourceError, h11.RemoteProtocolError):
        while (request := http.next_event()) is h11.NEED_DATA:
            http.receive_data(await stream.receive_some(_READ))
        if isinstance(request, h11.Request):
            left = int(request.target.rpartition(b"/")[2])
            await stream.send_all(http.send(_head(left)) or b"")
            while left:
                await stream.send_all(_CHUNK[:left])
                left -= min(left, len(_CHUNK))


def _listener(address: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    set_congestion(listener, CONGESTION_CONTROL)
    listener.bind((address, port))
    listener.listen(_BACKLOG)
    return listener


async def _run(listener: socket.socket) -> None:
    listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(listener))]
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, _serve, listeners)
        child.send(ready=True)


def work() -> None:
    """Serve until dismissed."""
    job = child.receive()
    trio.run(_run, _listener(job["address"], job["port"]))


if __name__ == "__main__":
    child.main(work)
