"""The process at the other end of a control connection, as the kernel knows it."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

import trio

_UCRED = struct.Struct("=iII")


class Credentials(NamedTuple):
    """Credentials of the process that connected, at the time it did (SO_PEERCRED, unix(7))."""

    pid: int
    """0 if it is in a process namespace that the daemon cannot see into."""
    uid: int
    gid: int

    @classmethod
    def of(cls, sock: socket.socket | trio.socket.SocketType) -> Credentials:
        """The credentials of the peer of a connected unix socket."""
        return cls(*_UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)))

    def __str__(self) -> str:
        return f"uid {self.uid}, gid {self.gid}, pid {self.pid}"
