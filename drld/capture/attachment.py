"""Where programs of a limiter hang: what both ways of attaching them have in common.

A program on a hook keeps itself, and so its maps, alive without any process or file, and the next
daemon of that limiter finds it there. Two ways, of which `attachment` takes the first that the
kernel has: tcx (`drld.capture.tcx`), and clsact with cls_bpf (`drld.capture.clsact`).
"""

from __future__ import annotations

import fcntl
import logging
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from drld.capture.bpf import Program
from drld.errors import DatapathError
from drld.spec import Direction

log = logging.getLogger(__name__)

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
    """An interface as it is now."""

    index: int
    link_bytes: int


@dataclass(frozen=True, slots=True)
class Found:
    """A program of this limiter that is there already."""

    interface: str
    index: int
    direction: Direction
    note: str


class Attachment(Protocol):
    """The programs of one limiter on the interfaces of the current network namespace."""

    way: str
    """`tcx` or `clsact`."""

    def program_name(self, kind: str) -> str:
        """What a program has to be called that is to be attached."""

    def put(self, index: int, direction: Direction, program: Program, note: str) -> None:
        """Attach a program, in place of an earlier one of this limiter: a packet meets one of them.

        Args:
            index: of the interface.
            direction: of the packets.
            program: was loaded as `program_name` says.
            note: ids of the maps that the next daemon shall find, with dots between them; or
                anything, where there are none.

        Raises:
            DatapathError: the kernel refuses.
        """

    def remove(self, index: int, direction: Direction) -> None:
        """Remove our program; an interface that is gone has taken it along.

        Raises:
            DatapathError: the kernel refuses.
        """

    def has(self, index: int, direction: Direction) -> bool:
        """Whether our program is there.

        Raises:
            DatapathError: the kernel does not say.
        """

    def found(self) -> list[Found]:
        """All programs of this limiter, on whatever interface.

        Raises:
            DatapathError: the kernel does not say.
        """

    def close(self) -> None:
        """Give up what is needed to talk to the kernel; the programs stay."""


def attachment(limiter_name: str) -> Attachment:
    """The better of the two ways that this kernel, and this process's capabilities, allow.

    Raises:
        DatapathError: neither.
    """
    from drld.capture import tcx

    if tcx.available():
        return tcx.Tcx(limiter_name)
    # pyroute2 takes longer to import than the rest of the datapath.
    from drld.capture.clsact import Clsact

    return Clsact(limiter_name)


def device(interface: str) -> Device:
    """Look an interface up.

    Raises:
        DatapathError: it is not there, or has a link layer that is not known here.
    """
    # Not if_nametoindex: that finds alternative names too, under which nothing is found again.
    index = {name: index for index, name in socket.if_nameindex()}.get(interface)
    if index is None:
        raise DatapathError(f"interface {interface}: there is none of this name")
    try:
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


@contextmanager
def cleaning_up() -> Iterator[None]:
    """For each step of undoing something: the other steps follow though this one fails."""
    try:
        yield
    except DatapathError as error:
        log.error("while cleaning up: %s", error)
