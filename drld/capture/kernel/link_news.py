"""Changes of the host's interfaces, from a netlink socket (rtnetlink(7)).

An interface that was removed and made again has no program of drld, so its packets pass unlimited
until the daemon attaches them. A check of all interfaces runs only once a second. Reading this
socket once a tick costs one system call.

An interface that is moved to another network namespace takes its programs on tcx along.
"""

from __future__ import annotations

import socket
from typing import NamedTuple

from drld.ebpf import links, netlink
from drld.errors import DatapathError

_GROUP_LINK = 1


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
            self._socket = netlink.subscribed(socket.NETLINK_ROUTE, _GROUP_LINK)
        except OSError as error:
            raise DatapathError(f"rtnetlink: {error}") from error

    def read(self) -> News:
        """The changes since the last call."""
        found, moved = False, set[int]()
        try:
            for data in netlink.come(self._socket):
                moved |= links.moved(data)
                found = True
        except OSError:
            return News(True, None)  # some are lost, so there was news
        return News(found, moved)

    def close(self) -> None:
        """Unsubscribe; safe to call twice."""
        self._socket.close()
