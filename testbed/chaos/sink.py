"""The sink of all traffic: receives all packets, and reports the canaries' ones."""

from __future__ import annotations

import socket
import sys
import threading
from collections import deque
from contextlib import suppress

from testbed import child
from testbed.chaos.source import CANARY

_SO_RCVBUFFORCE = 33
_BUFFER = 1 << 16
_SMALL = 4096
_ROOM = 1 << 22


def _accept(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_take, args=(connection,), daemon=True).start()


def _take(connection: socket.socket) -> None:
    buffer = bytearray(_BUFFER)
    with connection, suppress(OSError):
        while connection.recv_into(buffer):
            pass


def _canaries(canary: socket.socket, received: deque[bytes]) -> None:
    while True:
        received.append(canary.recv(_SMALL))


def work() -> None:
    """Receive until the standard input ends; each line of it is answered with the numbers of the
    canaries' packets that came since the last, by source."""
    job = child.receive()
    # Before the threads, which inherit it.
    priority = child.raise_priority()
    listener = socket.create_server(("", job["port"]), backlog=512)
    # Bound, so that the kernel sends no errors, and never read: the kernel drops the packets.
    stream = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL)
    stream.bind(("", job["stream"]))
    canary = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    canary.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _ROOM)
    canary.bind(("", job["canary"]))
    received: deque[bytes] = deque()
    threading.Thread(target=_accept, args=(listener,), daemon=True).start()
    threading.Thread(target=_canaries, args=(canary, received), daemon=True).start()
    child.send(ready=True, priority=priority)
    for _ in sys.stdin:
        numbers: list[list[int]] = [[] for _ in range(job["sources"])]
        for _ in range(len(received)):
            source, number = CANARY.unpack_from(received.popleft())
            numbers[source].append(number)
        child.send(received=numbers)


if __name__ == "__main__":
    child.main(work)
