"""Changes of the host's interfaces, from a netlink socket (rtnetlink(7)).

An interface that was removed and made again has no program of drld, so its packets pass unlimited
until the daemon attaches them. A check of all interfaces runs only once a second. Reading this
socket once a tick costs one system call.

An interface that is moved to another network namespace takes its programs on tcx along.
"""

from __future__ import annotations

import socket
from typing import NamedTuple

from drld.ebpf import links
from drld.errors import DatapathError

_GROUP_LINK = 1
_BYTES = 1 << 16


class News(NamedTuple):
    """The changes of interfaces since the last call."""

    any: bool
    """Whether any interface changed."""
    moved: set[int] | None
    """The indices of the interfaces that have left for another network namespace; None: messages
    were lost."""


class LinkNews:
    """News of the interfaces of the current network namespace, from now on."""

    def __init__(self) -> None:
        """Subscribe to the kernel's link messages.

        Raises:
            DatapathError: the kernel has no rtnetlink, or no descriptor is left.
        """
        try:
            self._socket = socket.socket(
                socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
            )
            self._socket.setblocking(False)
            self._socket.bind((0, _GROUP_LINK))
        except OSError as error:
            raise DatapathError(f"rtnetlink: {error}") from error

    def read(self) -> News:
        """The changes since the last call."""
        found, moved = False, set[int]()
        while True:
            try:
                moved |= links.moved(self._socket.recv(_BYTES))
            except BlockingIOError:
                return News(found, moved)
            except OSError:
                return News(True, None)  # the socket's buffer overflowed, so there was news
            found = True

    def close(self) -> None:
        """Unsubscribe; safe to call twice."""
        self._socket.close()
