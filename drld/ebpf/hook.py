"""A hook for programs, one direction of an interface, and the programs found on it."""

from __future__ import annotations

import fcntl
import socket
import struct
from dataclasses import dataclass

from drld.errors import DatapathError
from drld.police.direction import Direction

_LINK_BYTES = {1: 14, 772: 14, 512: 0, 519: 0, 768: 0, 769: 0, 776: 0, 65534: 0}
"""Length of the link header by ARPHRD type: Ethernet, loopback; PPP, raw IP, tunnels, none."""
_SIOCGIFHWADDR = 0x8927
_IFREQ = struct.Struct("=16sH22x")


@dataclass(frozen=True, slots=True)
class Hook:
    """One direction of one interface."""

    interface: str
    direction: Direction


@dataclass(frozen=True, slots=True)
class Device:
    """The present state of an interface."""

    index: int
    link_bytes: int


@dataclass(frozen=True, slots=True)
class Found:
    """A program of this limiter found on a hook."""

    interface: str
    index: int
    direction: Direction
    handover_ids: str


def index_of(interface: str) -> int | None:
    """Return the index of an interface; None: it does not exist. It may have an alternative
    name."""
    try:
        return socket.if_nametoindex(interface)
    except OSError:
        return None


def device(interface: str) -> Device:
    """Look an interface up.

    Raises:
        DatapathError: the interface does not exist, or has an unknown link layer.
    """
    try:
        # Not if_nametoindex: it also finds alternative names, under which no lookup finds the hook.
        index = {name: index for index, name in socket.if_nameindex()}.get(interface)
        if index is None:
            raise DatapathError(f"interface {interface}: does not exist")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asked = _IFREQ.pack(interface.encode("utf-8", "surrogateescape"), 0)
            _, kind = _IFREQ.unpack(fcntl.ioctl(asking, _SIOCGIFHWADDR, asked))
    except OSError as error:
        raise DatapathError(f"interface {interface}: {error}") from error
    if kind not in _LINK_BYTES:
        raise DatapathError(
            f"interface {interface}: the kernel datapath does not know its link layer "
            f"(ARPHRD type {kind})"
        )
    return Device(index, _LINK_BYTES[kind])
