"""Arrival times without the BPF filter: the sources `kernel` and `read`.

`kernel`: SO_TIMESTAMPNS. With each read, the kernel gives the time of the last segment that the
read took bytes from. TCP merges segments that wait, and one read takes many. So all messages of a
read get the time of its last segment. The time of a message that waited is too late, by at most the
time that it waited. The stamps are of the wall clock.

`read`: the time of a message is the beginning of the turn that reads it.
"""

from __future__ import annotations

import socket
import struct
import time

from drld.errors import DatapathError
from drld.messages.segments import Segments, Tally
from drld.model import NS_PER_S
from drld.police.wall_clock import CLOSE_NS, WallClock

KERNEL, READ = "kernel", "read"

_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@ll")
_ROOM = socket.CMSG_SPACE(_TIMESPEC.size)
_OLDEST_NS = NS_PER_S
"""The age beyond which a stamp is not believed: the wall clock may have been set."""


class ReadStamps:
    """The source without stamps: every message gets the time of reading."""

    source = READ

    def __init__(self, refusal: str = "") -> None:
        """Begin; `refusal` is the reason why a better source does not work, in brackets."""
        self.tally = Tally()
        self.lost = 0
        self.reason = f"messages charged when read{refusal}"

    def watch(self, listener: socket.socket) -> None:
        """Do nothing: messages are charged when they are read."""

    def unwatch(self, listener: socket.socket) -> None:
        """Do nothing."""

    def of(self, connection: socket.socket) -> Segments:  # noqa: ARG002 -- all are alike
        """The arrival times of a connection that has just been accepted, until `close`."""
        return Segments(None, self.tally)

    def receive(
        self,
        connection: socket.socket,
        segments: Segments,  # noqa: ARG002 -- they get no times
        buffer: bytearray | memoryview,
    ) -> int:
        """Read from a connection, like `socket.recv_into`."""
        return connection.recv_into(buffer)

    def drain(self) -> None:
        """Do nothing."""

    def close(self, connection: socket.socket) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""


class KernelStamps(ReadStamps):
    """The source of stamps by SO_TIMESTAMPNS."""

    source = KERNEL

    def __init__(self, refusal: str = "") -> None:
        """Begin; `refusal` is as for `ReadStamps`.

        Raises:
            DatapathError: the kernel has no such stamps.
        """
        super().__init__()
        self.reason = (
            "messages charged when the last segment arrived that was read with them, "
            f"by the kernel's timestamps{refusal}"
        )
        self._wall_clock = WallClock(time.monotonic_ns, time.time_ns)
        with socket.socket() as probe:
            self.watch(probe)

    def watch(self, listener: socket.socket) -> None:
        """Let the kernel stamp the connections that come to a listening socket from now on.

        Raises:
            DatapathError: the kernel refuses.
        """
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
            listener.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        except OSError as error:
            raise DatapathError(f"timestamps: the kernel's are refused: {error}") from error

    def unwatch(self, listener: socket.socket) -> None:
        """Let the kernel stamp no more connections of a socket that another process may use."""
        listener.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 0)

    def receive(
        self, connection: socket.socket, segments: Segments, buffer: bytearray | memoryview
    ) -> int:
        """Read from a connection, like `socket.recv_into`."""
        size, notes, _, _ = connection.recvmsg_into([buffer], _ROOM)
        stamp_ns = None
        for level, kind, data in notes:
            if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
                seconds, ns = _TIMESPEC.unpack(data)
                stamp_ns = self._arrival_ns(seconds * NS_PER_S + ns)
        segments.append(size, stamp_ns)
        return size

    def drain(self) -> None:
        """Begin a turn: no later read has a stamp from before the wall clock was set."""
        self._wall_clock.trust()

    def _arrival_ns(self, stamp_ns: int) -> int | None:
        now_ns = time.monotonic_ns()
        arrival_ns = self._wall_clock.monotonic_ns(stamp_ns, now_ns)
        if arrival_ns is None or not now_ns - _OLDEST_NS <= arrival_ns <= now_ns + CLOSE_NS:
            return None
        return min(arrival_ns, now_ns)
