"""The interfaces of the current network namespace, and those below each (rtnetlink(7))."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

from drld.ebpf import netlink
from drld.errors import DatapathError

_REQUEST = struct.Struct("=IHHII4x12x")
"""struct nlmsghdr, and struct ifinfomsg for any family."""
_LINK = struct.Struct("=BxHiII")
_GETLINK, _DONE, _ERROR = 18, 3, 2
_REQUEST_DUMP = 0x1 | 0x300
_DELLINK = 17
_NAME, _LOWER, _MASTER, _INFO, _FOREIGN, _NEW_NAMESPACE = 3, 5, 10, 18, 37, 45
_KIND = 1
_NEEDED = frozenset({_NAME, _LOWER, _MASTER, _INFO, _INFO | 0x8000, _FOREIGN})
_PAIRS = (b"veth\0", b"netkit\0")
"""Kinds whose `IFLA_LINK` is the other end, and not an interface below."""
_BYTES = 1 << 17


def below() -> dict[str, list[str]]:
    """The interfaces below each interface: a VLAN's parent, members of a bond, ports of a bridge.

    Raises:
        DatapathError: the kernel refuses to answer.
    """
    names: dict[int, str] = {}
    pairs: list[tuple[int, int]] = []
    try:
        for index, attributes in _links():
            names[index] = attributes[_NAME].rstrip(b"\0").decode("utf-8", "surrogateescape")
            if _MASTER in attributes:
                pairs.append((_number(attributes[_MASTER]), index))
            kind = netlink.attributes(attributes.get(_INFO, b""), (_KIND,)).get(_KIND)
            if _LOWER in attributes and _FOREIGN not in attributes and kind not in _PAIRS:
                pairs.append((index, _number(attributes[_LOWER])))
    except OSError as error:
        raise DatapathError(f"rtnetlink: {error}") from error
    found: dict[str, list[str]] = {name: [] for name in names.values()}
    for upper, lower in pairs:
        if upper != lower and upper in names and lower in names:
            found[names[upper]].append(names[lower])
    return found


def moved(news: bytes) -> set[int]:
    """The indices of the interfaces that have left for another network namespace, in what the
    kernel sent to a socket of the group of link messages."""
    return {
        _LINK.unpack_from(body)[2]
        for message, body in netlink.messages(news)
        if message == _DELLINK and netlink.attributes(body[_LINK.size :], (_NEW_NAMESPACE,))
    }


def _links() -> Iterator[tuple[int, dict[int, bytes]]]:
    """Index and attributes of each interface."""
    with netlink.opened(socket.NETLINK_ROUTE) as asking:
        asking.send(_REQUEST.pack(_REQUEST.size, _GETLINK, _REQUEST_DUMP, 1, 0))
        while True:
            for message, body in netlink.messages(asking.recv(_BYTES)):
                if message == _DONE:
                    return
                if message == _ERROR:
                    code = -struct.unpack_from("=i", body)[0]
                    raise OSError(code, "RTM_GETLINK")
                index = _LINK.unpack_from(body)[2]
                yield index, netlink.attributes(body[_LINK.size :], _NEEDED)


def _number(data: bytes) -> int:
    return int(struct.unpack("=I", data)[0])
