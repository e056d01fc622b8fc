"""The control API's server: a unix socket that only its owner and its group may open.

The socket gets its mode and group before clients can connect (`listen` comes last). The kernel
vouches for the credentials of each client. The number of clients is bounded, with places kept for
root. An error of one connection ends that connection alone. `drld.control.connection` serves one
client. `Connections` serves other hosts too (drld.control.tcp).
"""

from __future__ import annotations

import errno
import grp
import logging
import os
import socket
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Protocol

import trio
from starlette.types import ASGIApp

from drld.control.app import make_app
from drld.control.backend import Backend
from drld.control.browsers import guarded
from drld.control.connection import MAX_HEAD_BYTES, Connection
from drld.control.credentials import Credentials
from drld.control.turns import Turns
from drld.errors import ConfigError
from drld.log_event import event

log = logging.getLogger("drld.control")

MAX_CONNECTIONS = 64
KEPT_PLACES = 8
"""Connections that only root and the daemon's own user may have: the group cannot lock them out."""
SOCKET_MODE = 0o660
_BACKLOG = MAX_CONNECTIONS
"""Clients that may wait in the kernel: one that finds no place there would fail (EAGAIN)."""
_RETRY_S = 0.2
_PASSING = {
    *(errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM),
    # The client has gone already, or its network has failed: accept(2).
    *(errno.ECONNABORTED, errno.EPERM, errno.EPROTO, errno.ENOPROTOOPT, errno.EOPNOTSUPP),
    *(errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENONET),
}
"""Errors after which others can be accepted."""


async def serve(
    backend: Backend,
    path: str | os.PathLike[str],
    group: str | int | None = None,
    turns: Turns | None = None,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the control API on a unix socket until cancelled; then remove the socket.

    Args:
        backend: the object that answers.
        path: the path of the socket.
        group: the group that may open it, beside the daemon's user; None: the daemon's own.
        turns: the turns that all servers of the daemon share.
        task_status: started when the socket is there.

    Raises:
        ConfigError: the socket cannot be made, or another daemon answers on it.
    """
    path = Path(path)
    turns = turns or Turns()
    with claimed(path, group) as sock:
        await Connections(guarded(make_app(backend, turns)), turns).accept(
            trio.socket.from_stdlib_socket(sock), task_status
        )


@contextmanager
def claimed(
    path: Path,
    group: str | int | None = None,
    *,
    key: str = "limiter.control",
    mode: int = SOCKET_MODE,
) -> Iterator[socket.socket]:
    """A unix socket that listens, as long as the context lasts; then the file is removed.

    Args:
        path: the path of the socket.
        group: the group that it belongs to; None: the daemon's own.
        key: the key of the configuration that names it, for messages.
        mode: the mode of its file.

    Raises:
        ConfigError: the socket cannot be made, or another daemon answers on it.
    """
    found = claim(path, group, key=key, mode=mode)
    try:
        yield found.sock
    finally:
        found.release()


class Claim(NamedTuple):
    """A unix socket that listens, and its file."""

    sock: socket.socket
    path: Path
    identity: tuple[int, int]
    """The file's device and inode: another daemon may have replaced it."""

    def release(self) -> None:
        """Close the socket, and remove its file."""
        self.sock.close()
        with suppress(OSError):
            if _identity(self.path) == self.identity:
                self.path.unlink()


class Conversation(Protocol):
    """One connection of a server, in any protocol."""

    async def serve(self) -> None:
        """Answer until the client goes, or keeps us waiting for too long."""

    def drain(self) -> None:
        """End the connection: at once if no request has begun, else after the answer."""


class Connections:
    """The clients of one server. They share the event loop with the daemon and with each other.

    These clients are processes of this host; a server with other clients has a subclass.
    """

    kind, a_kind = "control", "a control"
    max_head_bytes = MAX_HEAD_BYTES
    """Largest head of a request."""

    def __init__(self, app: ASGIApp, turns: Turns) -> None:
        """Have an application answer, which takes turns with all others."""
        self._app = app
        self._turns = turns
        self._open: Counter[object] = Counter()
        """Open connections, by the client's `group`."""
        self._accepting: list[trio.CancelScope] = []
        self._connections: set[Conversation] = set()

    async def accept(
        self, listener: trio.socket.SocketType, task_status: trio.TaskStatus[None]
    ) -> None:
        """Serve each client. After `refuse`, return as soon as the last connection has ended."""
        async with trio.open_nursery() as nursery:
            task_status.started()
            with trio.CancelScope() as accepting:
                self._accepting.append(accepting)
                while True:
                    sock, address = await self._accepted(listener)
                    peer = self.peer(sock, address)
                    if self._open.total() < self.places(peer):
                        self._open[self.group(peer)] += 1
                        nursery.start_soon(self._serve_counted, self.stream(sock), peer)
                    else:
                        log.warning(
                            "refused %s connection of %s: %d are open",
                            *(self.a_kind, peer, self._open.total()),
                            extra=event(f"{self.kind}.refused", client=str(peer)),
                        )
                        sock.close()
                    await self.pause()

    def refuse(self) -> None:
        """Accept no further connection."""
        for accepting in self._accepting:
            accepting.cancel()

    def drain(self) -> None:
        """End each connection once it has answered the request that has begun, if any."""
        for connection in self._connections:
            connection.drain()

    def peer(self, sock: trio.socket.SocketType, _address: object) -> object:
        """The client that has connected; the application finds it in the `state` of each
        request."""
        return Credentials.of(sock)

    def places(self, peer: object) -> int:
        """The largest number of connections at which this client may open another."""
        assert isinstance(peer, Credentials)
        kept = 0 if peer.uid in (0, os.geteuid()) else KEPT_PLACES
        return MAX_CONNECTIONS - kept

    def shared(self, most: int, peer: object) -> int:
        """The given number of places, or 0 for a client whose group has half of them."""
        return most if self._open[self.group(peer)] < most // 2 else 0

    def group(self, _peer: object) -> object:
        """The group of this client; the clients of a group share their places."""
        return None

    def stream(self, sock: trio.socket.SocketType) -> trio.abc.Stream:
        """The stream that carries HTTP."""
        return trio.SocketStream(sock)

    def conversation(self, stream: trio.abc.Stream, peer: object) -> Conversation:
        """The object that serves one client."""
        return Connection(self._app, self._turns, stream, peer, self.max_head_bytes)

    async def pause(self) -> None:
        """Wait before another is accepted."""

    async def _accepted(
        self, listener: trio.socket.SocketType
    ) -> tuple[trio.socket.SocketType, object]:
        while True:
            try:
                return await listener.accept()
            except OSError as error:
                if error.errno not in _PASSING:
                    raise
                log.warning(
                    "cannot accept %s connection: %s",
                    *(self.a_kind, error.strerror),
                    extra=event(f"{self.kind}.exhausted", reason=error.strerror),
                )
                await trio.sleep(_RETRY_S)

    async def _serve_counted(self, stream: trio.abc.Stream, peer: object) -> None:
        try:
            await self.serve(stream, peer)
        finally:
            self._open[self.group(peer)] -= 1
            self._open += Counter()  # Forgets groups without a client.

    async def serve(self, stream: trio.abc.Stream, peer: object) -> None:
        """Serve one client; an error of it harms no other client."""
        connection = self.conversation(stream, peer)
        self._connections.add(connection)
        try:
            await connection.serve()
        except Exception:
            log.exception(
                "%s connection ended with an error",
                self.a_kind,
                extra=event(f"{self.kind}.failed", client=str(peer)),
            )
        finally:
            self._connections.remove(connection)


def claim(
    path: Path,
    group: str | int | None = None,
    *,
    key: str = "limiter.control",
    mode: int = SOCKET_MODE,
) -> Claim:
    """Make the listening socket of `claimed`, and the directory that it is in.

    Raises:
        ConfigError: the socket cannot be made, or another daemon answers on it.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _clear(path, key)
        # The file gets the mode of the descriptor, less the umask: the owner's alone at first.
        os.fchmod(sock.fileno(), 0o600)
        sock.bind(os.fspath(path))
        identity = _identity(path)
        if group is not None:
            _give(path, group)
        path.chmod(mode)
        # No client can connect before listen(), so none sees the socket with another mode or group.
        sock.listen(_BACKLOG)
        return Claim(sock, path, identity)
    except OSError as error:
        sock.close()
        reason = error.strerror or str(error)
        if isinstance(error, PermissionError) and key == "limiter.control":
            reason += "; set limiter.control, or the variable XDG_RUNTIME_DIR"
        raise _refusal(key, path, reason) from error
    except ConfigError:
        sock.close()
        raise


def _give(path: Path, group: str | int) -> None:
    """Make it the group's.

    Raises:
        ConfigError: there is no such group, or the daemon may not.
    """
    try:
        number = group if isinstance(group, int) else grp.getgrnam(group).gr_gid
        os.chown(path, -1, number, follow_symlinks=False)
    except (KeyError, OSError) as error:
        path.unlink()
        reason = (
            f"{error.strerror}: the daemon must be root, or in the group"
            if isinstance(error, OSError)
            else "no such group on this host"
        )
        raise ConfigError([f"limiter.control_group: {group!r}: {reason}"]) from None


def _clear(path: Path, key: str) -> None:
    """Remove what a killed daemon left behind, and nothing else."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise _refusal(key, path, "is there already, and is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        if probe.connect_ex(os.fspath(path)) != errno.ECONNREFUSED:
            raise _refusal(key, path, "another daemon answers there; stop it, or use another path")
    path.unlink()


def _refusal(key: str, path: Path, reason: str) -> ConfigError:
    return ConfigError([f"{key}: {path}: {reason}"])


def _identity(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_dev, status.st_ino
