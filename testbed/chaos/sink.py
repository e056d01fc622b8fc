"""The sink of all traffic: receives all packets, and reports the canaries' ones."""

from __future__ import annotations

import os
import selectors
import socket
import sys
from collections.abc import Callable

from testbed import child
from testbed.chaos.source import CANARY

_SO_RCVBUFFORCE = 33
_BUFFER = 1 << 18
_SMALL = 4096
_ROOM = 1 << 22


class _Sink:
    def __init__(self, selector: selectors.BaseSelector, sources: int) -> None:
        self.received: list[list[int]] = [[] for _ in range(sources)]
        self._selector = selector
        self._buffer = bytearray(_BUFFER)

    def register(self, sock: socket.socket, read: Callable[[socket.socket], None]) -> None:
        sock.setblocking(False)
        self._selector.register(sock, selectors.EVENT_READ, read)

    def accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        self.register(connection, self._take)

    def _take(self, connection: socket.socket) -> None:
        try:
            count = connection.recv_into(self._buffer)
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if not count:
            self._selector.unregister(connection)
            connection.close()

    def canary(self, sock: socket.socket) -> None:
        while True:
            try:
                packet = sock.recv(_SMALL)
            except BlockingIOError:
                return
            source, number = CANARY.unpack_from(packet)
            self.received[source].append(number)


def work() -> None:
    """Receive until the standard input ends; each line of it is answered with the canaries' numbers
    that came since the last, by source."""
    job = child.receive()
    listener = socket.create_server(("", job["port"]), backlog=512)
    # Bound, so that the kernel sends no errors, and never read: the kernel drops the packets.
    stream = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL)
    stream.bind(("", job["stream"]))
    canary = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    canary.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _ROOM)
    canary.bind(("", job["canary"]))
    os.set_blocking(sys.stdin.fileno(), False)
    with selectors.DefaultSelector() as selector, stream:
        sink = _Sink(selector, job["sources"])
        sink.register(listener, sink.accept)
        sink.register(canary, sink.canary)
        selector.register(sys.stdin, selectors.EVENT_READ)
        child.send(ready=True, priority=child.raise_priority())
        while True:
            for key, _ in selector.select():
                if isinstance(key.fileobj, socket.socket):
                    key.data(key.fileobj)
                elif not os.read(sys.stdin.fileno(), _SMALL):
                    return
                else:
                    sink.canary(canary)
                    child.send(received=sink.received)
                    sink.received = [[] for _ in range(job["sources"])]


if __name__ == "__main__":
    child.main(work)
