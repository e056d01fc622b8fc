"""Changes of the host's interfaces, from a netlink socket (rtnetlink(7)).

An interface that was removed and made again has no program of drld, so its packets pass unlimited
until the daemon attaches them. A check of all interfaces runs only once a second. Reading this
socket once a tick costs one system call.
"""

from __future__ import annotations

import socket

from drld.errors import DatapathError

_GROUP_LINK = 1
_BYTES = 1 << 16


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

    def any(self) -> bool:
        """Whether any interface changed since the last call."""
        found = False
        while True:
            try:
                self._socket.recv(_BYTES)
            except BlockingIOError:
                return found
            except OSError:
                return True  # the socket's buffer overflowed, so there was news
            found = True

    def close(self) -> None:
        """Unsubscribe; safe to call twice."""
        self._socket.close()
