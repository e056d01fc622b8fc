"""Servers that are asked over a socket: processes of their own on the second processor."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from testbed.server_process import ServerProcess


@contextmanager
def server(command: Sequence[str], path: Path, cpu: int) -> Iterator[Callable[[], socket.socket]]:
    """A server on a unix socket, which ends with the context; what makes connections to it.

    Raises:
        MeasurementError: it does not listen.
    """
    pinned = ["taskset", "-c", str(cpu), *command]
    process = ServerProcess(path.stem, pinned, path.with_suffix(".log"))
    connect = partial(_connected, path)
    with process.serving(connect) as first:
        first.close()
        yield partial(process.ready, connect)


def _connected(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(str(path))
    except OSError:
        sock.close()
        raise
    return sock
