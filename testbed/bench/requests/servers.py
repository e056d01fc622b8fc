"""Servers that are asked over a socket: processes of their own on the second processor."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from testbed.errors import MeasurementError

_PATIENCE_S = 60.0


@contextmanager
def server(command: Sequence[str], path: Path, cpu: int) -> Iterator[Callable[[], socket.socket]]:
    """A server on a unix socket, which ends with the context; what makes connections to it.

    Raises:
        MeasurementError: it does not listen.
    """
    log = path.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["taskset", "-c", str(cpu), *command], stdout=output, stderr=output
        )
    try:
        _connected(process, path, log).close()
        yield partial(_connected, process, path, log)
    finally:
        process.terminate()
        process.wait(_PATIENCE_S)


def _connected(process: subprocess.Popen[bytes], path: Path, log: Path) -> socket.socket:
    deadline = time.monotonic() + _PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline:
        sock = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):
            sock.connect(str(path))
            return sock
        sock.close()
        time.sleep(0.05)
    raise MeasurementError(f"no server at {path}: {log.read_text(errors='replace')[-500:]}")
