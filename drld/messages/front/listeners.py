"""The sockets on which brokers' clients connect, and how they outlive the daemon.

A service manager may keep them (sd_pid_notify_with_fds(3), `FDSTORE=1`) and pass them to the next
daemon (sd_listen_fds(3)). Clients that connect meanwhile wait in the kernel and are not refused.
Any other supervisor may do the same: it opens the sockets itself, and passes them at each start
(`LISTEN_FDS`, `LISTEN_PID`).
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from drld.control.server import claimed
from drld.control.tcp import bound
from drld.messages.spec import Address, BrokerSpec
from drld.spec import format_endpoint

SOCKET_MODE = 0o666
"""Of a unix socket: a client that may enter its directory may connect, as on loopback."""
BACKLOG = 4096
"""Clients that may wait in the kernel, if its `net.core.somaxconn` permits."""


class Keeper(Protocol):
    """A service manager that keeps sockets (`drld.daemon.notify.Manager`)."""

    def inherited(self) -> list[socket.socket]:
        """Those that it has passed to this process."""

    def keep(self, name: str, sock: socket.socket) -> bool:
        """Have a socket kept under a name; return whether it is."""


class NoKeeper:
    """There is no such service manager."""

    def inherited(self) -> list[socket.socket]:
        """None."""
        return []

    def keep(self, name: str, sock: socket.socket) -> bool:  # noqa: ARG002 -- there is nobody
        """It is not kept."""
        return False


class Listeners:
    """The listening sockets of all brokers."""

    def __init__(self, keeper: Keeper) -> None:
        """Take over what the service manager has kept."""
        self._keeper = keeper
        self._inherited = {_address(sock): sock for sock in keeper.inherited()}
        self._stack = ExitStack()

    def open(self, brokers: Iterable[BrokerSpec]) -> dict[str, list[socket.socket]]:
        """The sockets of each broker, by its name; none of them blocks.

        Raises:
            ConfigError: an address cannot be bound; those that could are closed.
        """
        found: dict[str, list[socket.socket]] = {}
        with ExitStack() as undo:
            undo.callback(self.close)
            for broker in brokers:
                found[broker.name] = [self._open(address) for address in broker.listen]
            for sock in self._inherited.values():
                sock.close()  # The configuration has other addresses now.
            undo.pop_all()
        return found

    def close(self) -> None:
        """Close them here; those that are kept go on to listen."""
        self._stack.close()

    def _open(self, address: Address) -> socket.socket:
        sock = self._inherited.pop(address, None)
        if sock is not None:
            self._stack.callback(sock.close)
        else:
            sock = self._bound(address)
        sock.setblocking(False)
        return sock

    def _bound(self, address: Address) -> socket.socket:
        with ExitStack() as made:
            if isinstance(address, str):
                place = claimed(Path(address), key="broker.listen", mode=SOCKET_MODE)
                sock = made.enter_context(place)
                sock.listen(BACKLOG)
            else:
                sock = bound(*address, key="broker.listen", backlog=BACKLOG)
                made.callback(sock.close)
            if self._keeper.keep(shown(address).replace(":", "_"), sock):
                # The file of a unix socket stays, too.
                made.pop_all()
                self._stack.callback(sock.close)
            else:
                self._stack.enter_context(made.pop_all())
        return sock


def shown(address: Address) -> str:
    """An address as a file has it."""
    return address if isinstance(address, str) else format_endpoint(*address)


def _address(sock: socket.socket) -> Address:
    """Where a socket listens."""
    name = sock.getsockname()
    return name if isinstance(name, str) else (str(name[0]), int(name[1]))
