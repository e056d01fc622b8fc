"""Real daemons over loopback, without any privilege, and free ports for them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

ROOT = Path(__file__).resolve().parents[1]
NO_PRIVILEGES = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--")


def ports(count: int, kind: socket.SocketKind) -> list[int]:
    """Free ports of loopback."""
    socks = [socket.socket(socket.AF_INET, kind) for _ in range(count)]
    for sock in socks:
        sock.bind(("127.0.0.1", 0))
    found = [sock.getsockname()[1] for sock in socks]
    for sock in socks:
        sock.close()
    return found


def pairs_of_ports(count: int) -> list[int]:
    """Free UDP ports of loopback, of which the next is free, too."""
    found: list[int] = []
    socks: list[socket.socket] = []
    while len(found) < count:
        first, second = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        socks += first, second
        first.bind(("127.0.0.1", 0))
        port = first.getsockname()[1]
        try:
            second.bind(("127.0.0.1", port + 1))
        except OSError:
            continue
        found.append(port)
    for sock in socks:
        sock.close()
    return found


def unprivileged(*command: str) -> list[str]:
    """A command without capabilities: with them dropped, if this user has any."""
    return [*(NO_PRIVILEGES if os.geteuid() == 0 else ()), sys.executable, "-m", *command]


@asynccontextmanager
async def running(config: Path) -> AsyncIterator[trio.Process]:
    """A daemon, once it is ready; in the end it stops in order or was killed, or the test fails."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "NOTIFY_SOCKET": str(config.with_suffix(".notify")),
    }
    notify = trio.socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    config.with_suffix(".notify").unlink(missing_ok=True)
    with notify:
        await notify.bind(environment["NOTIFY_SOCKET"])
        process = await trio.lowlevel.open_process(
            unprivileged("drld", "--config", str(config)),
            env=environment,
            stderr=subprocess.DEVNULL,
        )
        try:
            said = b""
            while b"READY=1" not in said:
                with trio.move_on_after(1):
                    said = await notify.recv(4096)
                assert process.returncode is None, "the daemon has ended"
            yield process
            if process.returncode != -signal.SIGKILL:
                process.send_signal(signal.SIGTERM)
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
