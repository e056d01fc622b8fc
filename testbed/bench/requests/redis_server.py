"""Debian's Redis, in memory alone, and its protocol as far as the rows need it."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.bench.requests.contest import Scene
from testbed.bench.requests.servers import server
from testbed.programs import program

SETTINGS = "no persistence, unix socket, one connection"
_NUMBERS = itertools.count()


@contextmanager
def redis(scene: Scene) -> Iterator[tuple[socket.socket, Path]]:
    """A connection to a new server, and the path of its socket."""
    path = scene.state / f"redis{next(_NUMBERS)}.sock"
    command = [program("redis-server"), "--port", "0", "--unixsocket", str(path),
               "--save", "", "--appendonly", "no"]  # fmt: skip
    with server(command, path, scene.cpu) as connect, connect() as sock:
        yield sock, path


def command(*words: object) -> bytes:
    """A command in Redis' protocol (RESP 2)."""
    texts = [str(word).encode() for word in words]
    return b"*%d\r\n" % len(texts) + b"".join(b"$%d\r\n%s\r\n" % (len(it), it) for it in texts)


def pipeline(sock: socket.socket, commands: list[bytes]) -> None:
    """Send commands whose answers are one line each, and read these."""
    for start in range(0, len(commands), 1000):
        some = commands[start : start + 1000]
        sock.sendall(b"".join(some))
        lines = 0
        while lines < len(some):
            lines += sock.recv(65_536).count(b"\r\n")
