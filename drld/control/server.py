"""The control API's server: a unix socket that only the owner and the group may open.

Connections are hypercorn's; accepting them is ours, for three reasons. hypercorn shields its
writes from cancellation, so a reader that stops reading would keep the daemon from stopping: on
the way out we shut the sockets down under it. Whatever a connection raises must end that
connection alone. And their number is bounded.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import cast

import trio
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework, ConnectionState
from hypercorn.utils import wrap_app

from drld.control.app import make_app
from drld.control.backend import Backend
from drld.errors import ConfigError

log = logging.getLogger("drld.control")

MAX_CONNECTIONS = 64
SOCKET_MODE = 0o660
_BACKLOG = 16


async def serve(
    backend: Backend,
    path: str | os.PathLike[str],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the control API on a unix socket until cancelled; then remove the socket.

    Raises:
        ConfigError: the socket cannot be made, or another daemon answers on it.
    """
    path = Path(path)
    sock, identity = _claim(path)
    try:
        await _accept(backend, sock, task_status)
    finally:
        sock.close()
        with suppress(OSError):
            if _identity(path) == identity:
                path.unlink()


async def _accept(
    backend: Backend, sock: socket.socket, task_status: trio.TaskStatus[None]
) -> None:
    config = Config()
    config.errorlog = log
    config.include_server_header = False
    config.h11_max_incomplete_size = 8192
    config.h2_max_concurrent_streams = 4
    app = wrap_app(cast(ASGIFramework, make_app(backend)), config.wsgi_max_body_size, "asgi")
    context = WorkerContext(None)
    open_streams: set[trio.SocketStream] = set()

    async def handle(stream: trio.SocketStream) -> None:
        if len(open_streams) == MAX_CONNECTIONS:
            log.warning("refused a control connection: %d are open", MAX_CONNECTIONS)
            return
        open_streams.add(stream)
        try:
            # TCPServer works on plain streams too, whatever its signature says.
            ssl_stream = cast("trio.SSLStream[trio.SocketStream]", stream)
            await _Connection(app, config, context, ConnectionState({}), ssl_stream)
        except Exception:
            log.exception("a control connection ended with an error")
        finally:
            open_streams.discard(stream)

    listener = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_hang_up_when_cancelled, open_streams)
        await nursery.start(trio.serve_listeners, handle, [listener])
        task_status.started()


class _Connection(TCPServer):
    """One connection, which ends when the client has gone.

    hypercorn's own would stay for the keep-alive timeout, and count as open.
    """

    async def _read_data(self) -> None:
        await super()._read_data()
        await self.idle_task.stop()


async def _hang_up_when_cancelled(streams: set[trio.SocketStream]) -> None:
    try:
        await trio.sleep_forever()
    finally:
        for stream in streams:
            with suppress(OSError):
                stream.socket.shutdown(socket.SHUT_RDWR)


def _claim(path: Path) -> tuple[socket.socket, tuple[int, int]]:
    """Make the listening socket, and the directory it is in; tell it from its successors."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _clear(path)
        sock.bind(os.fspath(path))
        # Nobody can connect before listen(), so nobody ever sees it with another mode.
        path.chmod(SOCKET_MODE)
        sock.listen(_BACKLOG)
        return sock, _identity(path)
    except OSError as error:
        sock.close()
        raise _refusal(path, error.strerror or str(error)) from error
    except ConfigError:
        sock.close()
        raise


def _clear(path: Path) -> None:
    """Remove what a killed daemon left behind, and nothing else."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise _refusal(path, "is there already, and is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        if probe.connect_ex(os.fspath(path)) != errno.ECONNREFUSED:
            raise _refusal(path, "another daemon answers there; stop it, or use another path")
    path.unlink()


def _refusal(path: Path, reason: str) -> ConfigError:
    return ConfigError([f"limiter.control: {path}: {reason}"])


def _identity(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_dev, status.st_ino
