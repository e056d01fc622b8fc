"""The sockets on which brokers' clients connect, and how they outlive the daemon.

A service manager may keep the sockets (sd_pid_notify_with_fds(3), `FDSTORE=1`) and pass them to the
next daemon (sd_listen_fds(3)). Clients that connect meanwhile wait in the kernel and are not
refused. Any other supervisor may do the same: it opens the sockets itself, and passes them at each
start (`LISTEN_FDS`, `LISTEN_PID`).
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from drld.control.server import claim
from drld.control.tcp import bound
from drld.messages.spec import Address
from drld.spec import format_endpoint

SOCKET_MODE = 0o666
"""Mode of a unix socket: a client that may enter its directory may connect, as on loopback."""
BACKLOG = 4096
"""Clients that may wait in the kernel, if its `net.core.somaxconn` permits."""


class Keeper(Protocol):
    """A service manager that keeps sockets (`drld.daemon.notify.Manager`)."""

    def inherited(self) -> list[socket.socket]:
        """Take the sockets that the manager has passed to this process."""

    def keep(self, name: str, sock: socket.socket) -> bool:
        """Ask the manager to keep a socket under a name; return whether it does."""

    def forget(self, name: str) -> None:
        """Ask the manager to close the socket of this name."""


class NoKeeper:
    """The keeper where there is no such service manager."""

    def inherited(self) -> list[socket.socket]:
        """Return no sockets."""
        return []

    def keep(self, name: str, sock: socket.socket) -> bool:  # noqa: ARG002 -- it keeps none
        """Refuse to keep a socket: there is no service manager."""
        return False

    def forget(self, name: str) -> None:
        """Do nothing."""


class _Listener(NamedTuple):
    """A socket that listens, and what closes it."""

    sock: socket.socket
    close: Callable[[], None]
    """Closes the socket; a socket that the service manager keeps goes on to listen."""
    kept: bool
    """Whether the service manager keeps the socket."""


class Listeners:
    """The listening sockets of all brokers, by their addresses."""

    def __init__(self, keeper: Keeper) -> None:
        """Take over the sockets that the service manager has kept."""
        self._keeper = keeper
        self._open = {
            _address(sock): _Listener(sock, sock.close, True) for sock in keeper.inherited()
        }

    def sockets(self, addresses: Iterable[Address]) -> list[socket.socket]:
        """The open sockets of these addresses; none of them blocks."""
        return [self._open[address].sock for address in addresses]

    def open(self, addresses: Iterable[Address]) -> Collection[Address]:
        """Open the sockets of the addresses that have none; return the addresses of those.

        Raises:
            ConfigError: an address cannot be bound; no socket has been opened.
        """
        opened: list[Address] = []
        with ExitStack() as undo:
            undo.callback(self.close, opened)
            for address in addresses:
                if address not in self._open:
                    self._open[address] = self._bound(address)
                    opened.append(address)
                self._open[address].sock.setblocking(False)
            undo.pop_all()
        return opened

    def others(self, addresses: Collection[Address]) -> list[Address]:
        """The addresses of the open sockets that are not among these."""
        return [address for address in self._open if address not in addresses]

    def close(self, addresses: Iterable[Address]) -> None:
        """Close the sockets of these addresses for good: clients are refused from now on."""
        for address in addresses:
            listener = self._open.pop(address)
            # It stops to listen at once, although the service manager has a descriptor of it.
            with suppress(OSError):
                listener.sock.shutdown(socket.SHUT_RDWR)
            listener.close()
            if listener.kept:
                self._keeper.forget(_name(address))
                if isinstance(address, str):
                    with suppress(OSError):
                        Path(address).unlink()

    def release(self) -> None:
        """Close all sockets here; those that the service manager keeps go on to listen."""
        while self._open:
            self._open.popitem()[1].close()

    def _bound(self, address: Address) -> _Listener:
        if isinstance(address, str):
            made = claim(Path(address), key="broker.listen", mode=SOCKET_MODE)
            made.sock.listen(BACKLOG)
            sock, close = made.sock, made.release
        else:
            with self._beside(address) as shares:
                sock = bound(*address, key="broker.listen", backlog=BACKLOG, shares=shares)
            _share(sock, False)
            close = sock.close
        if self._keeper.keep(_name(address), sock):
            # The file of a unix socket stays, too.
            return _Listener(sock, sock.close, True)
        return _Listener(sock, close, False)

    @contextmanager
    def _beside(self, address: tuple[str, int]) -> Iterator[bool]:
        """Let an address be bound although a socket here listens on another one with its port.

        So `listen` can move from one address of a host to all of them. Yields whether there is such
        a socket. Otherwise the new one must not share its port: another daemon may have it.
        """
        found = [
            listener.sock
            for own, listener in self._open.items()
            if not isinstance(own, str) and own[1] == address[1]
        ]
        for sock in found:
            _share(sock, True)
        try:
            yield bool(found)
        finally:
            for sock in found:
                _share(sock, False)


def _share(sock: socket.socket, shares: bool) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, shares)


def shown(address: Address) -> str:
    """Write an address as a configuration file has it."""
    return address if isinstance(address, str) else format_endpoint(*address)


def _name(address: Address) -> str:
    """The name of an address's socket at the service manager; it has no colon."""
    return shown(address).replace(":", "_")


def _address(sock: socket.socket) -> Address:
    """The address on which a socket listens."""
    name = sock.getsockname()
    return name if isinstance(name, str) else (str(name[0]), int(name[1]))
