"""Netlink sockets (netlink(7)): subscriptions to news of the kernel, and the parts of messages.

pyroute2 would do it as well, but takes more memory than the rest of the datapath.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Container, Iterator

HEADER = struct.Struct("=IHHII")
"""struct nlmsghdr: length, type, flags, sequence, port."""
_ATTRIBUTE = struct.Struct("=HH")
_BYTES = 1 << 17


def opened(protocol: int) -> socket.socket:
    """A socket of a netlink protocol in the current network namespace.

    Raises:
        OSError: the kernel lacks the protocol, or no descriptor is left.
    """
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)


def subscribed(protocol: int, group: int) -> socket.socket:
    """A socket that gets the news of a group, 1 to 32, from now on.

    Raises:
        OSError: as `opened`.
    """
    found = opened(protocol)
    try:
        found.setblocking(False)
        found.bind((0, 1 << group - 1))
    except OSError:
        found.close()
        raise
    return found


def come(subscription: socket.socket) -> Iterator[bytes]:
    """The news that have come.

    Raises:
        OSError: the socket's buffer has overflowed, so some are lost.
    """
    while True:
        try:
            yield subscription.recv(_BYTES)
        except BlockingIOError:
            return


def messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and body of each message."""
    at = 0
    while at < len(data):
        length, message, *_ = HEADER.unpack_from(data, at)
        yield message, data[at + HEADER.size : at + length]
        at += (length + 3) & ~3


def attributes(data: bytes, needed: Container[int]) -> dict[int, bytes]:
    """The needed attributes by their types. A link has forty others, and a host may have a thousand
    links."""
    found = {}
    at, end = 0, len(data)
    while at < end:
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if kind in needed:
            found[kind] = data[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3
    return found
