"""Whether interfaces came, went or changed: the kernel tells a netlink socket (rtnetlink(7)).

An interface that comes back under its name has none of our programs, and what passes it is not
limited until they are there again. Looking for that once a second would leave a second; asking
this socket once a tick costs one system call that returns nothing.
"""

from __future__ import annotations

import socket

from drld.errors import DatapathError

_GROUP_LINK = 1
_BYTES = 1 << 16


class LinkNews:
    """News of the interfaces of the current network namespace, from now on."""

    def __init__(self) -> None:
        """Subscribe.

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
        """Whether there was any since the last time; what they say is for others to find out."""
        found = False
        while True:
            try:
                self._socket.recv(_BYTES)
            except BlockingIOError:
                return found
            except OSError:
                return True  # too many for the socket's buffer are news as well
            found = True

    def close(self) -> None:
        """Unsubscribe; safe to call twice."""
        self._socket.close()
