"""Arrival times of messages from a BPF socket filter (bpf/segments.c), the source `socket`.

The filter is attached to the listening socket, and the kernel gives it to each accepted socket. It
runs for each segment, before the segment can be read, and writes a record into a ring: the time,
the connection's cookie, the sequence number and the length. `drain` moves the records to the
connections' `Segments`. A connection whose bytes have no record yet drains as well. So a segment
that came in after the turn's `drain` has its time, too.

The first byte's sequence number is that of the client's SYN plus one, and the kernel saves the SYN
(TCP_SAVE_SYN). It saves none while it answers a flood of SYNs with cookies. Then the number is that
of the handshake's last acknowledgement, which has a record of its own.

Where a ring is full, records are lost. Their bytes get the time of reading (`unstamped`).

To load the program takes CAP_BPF and Linux 5.8. Rings and program end with the process: no other
process, interface or cgroup has a reference to them.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from drld.ebpf import bpf
from drld.ebpf.bpf import Map, Program
from drld.ebpf.compiler import compiled
from drld.ebpf.ring import HEADER, Ring
from drld.errors import DatapathError
from drld.messages.saved_syn import initial_sequence
from drld.messages.segments import Segments, Tally

SOCKET = "socket"

_SEGMENT = struct.Struct(f"={HEADER}QQII")
_OPENING = struct.Struct(f"={HEADER}Q36sIII")
_RING_BYTES = 4 << 20
"""The ring's bytes: 131,072 segments may come in while the daemon stands still."""
_OPENING_RING_BYTES = 1 << 20

_MOST_EARLY = 65_536
"""The most segments of connections that are not accepted yet, or that have been closed."""
_MOST_OPENINGS = 8192

_SO_ATTACH_BPF, _SO_DETACH_FILTER, _SO_COOKIE = 50, 27, 57
_TCP_SAVE_SYN, _TCP_SAVED_SYN = 27, 28
_LARGEST_HEADERS = 256
_MAPPED = bytes(10) + b"\xff\xff"


class _Opening(NamedTuple):
    """The segment that opened a connection."""

    time_ns: int
    sequence: int
    length: int


class SocketStamps:
    """The filter, its rings, and the connections that use it."""

    source = SOCKET

    def __init__(self, *, ring_bytes: int = _RING_BYTES, cache: Path | None = None) -> None:
        """Load the filter.

        Args:
            ring_bytes: the size of the ring of segments, a power of two of pages.
            cache: the directory of the compiled program; None: the host's directory.

        Raises:
            DatapathError: the compiler or the kernel refuses.
        """
        self.tally = Tally()
        self._segments: dict[int, Segments] = {}
        """The times of the accepted connections, by cookie."""
        self._early: OrderedDict[int, list[tuple[int, int, int]]] = OrderedDict()
        """The segments (sequence number, length, time) of other connections, by cookie."""
        self._early_count = 0
        self._openings: OrderedDict[bytes, _Opening] = OrderedDict()
        """The segments that opened connections, by the addresses in their records."""
        self._closing: list[Callable[[], None]] = []
        code = compiled("segments", cache=cache)["take_down"]
        try:
            self._ring = self._owned(Ring("segments", _SEGMENT, ring_bytes))
            self._opening_ring = self._owned(Ring("openings", _OPENING, _OPENING_RING_BYTES))
            self._lost = self._owned(Map.create(bpf.ARRAY, "lost", (4, 8), 1, bpf.MMAPABLE))
            maps = {it.name: it for it in (self._ring.map, self._opening_ring.map, self._lost)}
            self._program = self._owned(
                Program.load("segments", code, maps, kind=bpf.SOCKET_FILTER)
            )
        except BaseException:
            self.stop()
            raise

    @property
    def reason(self) -> str:
        """A phrase for an operator: the time at which messages are charged."""
        return "messages charged when they arrived, by a BPF filter on the socket"

    @property
    def lost(self) -> int:
        """The number of records that met a full ring."""
        return int.from_bytes(self._lost.memory()[:8], sys.byteorder)

    def watch(self, listener: socket.socket) -> None:
        """Record the segments of connections that come to a listening socket from now on.

        Raises:
            DatapathError: the kernel refuses.
        """
        try:
            listener.setsockopt(socket.IPPROTO_TCP, _TCP_SAVE_SYN, 1)
            # Urgent data would leave the stream, and its offsets would no longer be TCP's.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
            listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_BPF, self._program.fd)
        except OSError as error:
            raise DatapathError(f"timestamps: the kernel refuses the filter: {error}") from error

    def unwatch(self, listener: socket.socket) -> None:
        """Remove the filter from a listening socket, which another process may go on to use."""
        listener.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)

    def of(self, connection: socket.socket) -> Segments:
        """The arrival times of a connection that has just been accepted, until `close`."""
        self.drain()
        cookie = _cookie(connection)
        early = self._early.pop(cookie, [])
        self._early_count -= len(early)
        segments = self._segments[cookie] = self._begun(connection)
        for sequence, length, time_ns in early:
            segments.add(sequence, length, time_ns)
        return segments

    def _begun(self, connection: socket.socket) -> Segments:
        opening = None
        try:
            opening = self._openings.pop(_addresses(connection), None)
            saved = connection.getsockopt(socket.IPPROTO_TCP, _TCP_SAVED_SYN, _LARGEST_HEADERS)
        except OSError:
            saved = b""  # it has been reset
        first = initial_sequence(saved)
        if first is not None:
            first += 1
        elif opening is not None:
            first = opening.sequence
        segments = self.table(first)
        if opening is not None:
            segments.add(opening.sequence, opening.length, opening.time_ns)
        return segments

    def table(self, first: int | None) -> Segments:
        """Make an empty table of a connection; `first` is the sequence number of its first byte."""
        return Segments(first, self.tally, self.drain)

    def receive(
        self,
        connection: socket.socket,
        segments: Segments,  # noqa: ARG002 -- they get their times by `drain`
        buffer: bytearray | memoryview,
    ) -> int:
        """Read from a connection, like `socket.recv_into`."""
        return connection.recv_into(buffer)

    def drain(self) -> None:
        """Give the connections the records of the filter: at the start of each turn."""
        known = self._segments
        for time_ns, cookie, sequence, length in self._ring.take():
            segments = known.get(cookie)
            if segments is not None:
                segments.add(sequence, length, time_ns)
            else:
                self._early.setdefault(cookie, []).append((sequence, length, time_ns))
                self._early_count += 1
        while self._early_count > _MOST_EARLY:
            self._early_count -= len(self._early.popitem(last=False)[1])
        for time_ns, addresses, sequence, length, _ in self._opening_ring.take():
            # The last one of several made the connection: the kernel dropped the others.
            self._openings[addresses] = _Opening(time_ns, sequence, length)
            self._openings.move_to_end(addresses)
        while len(self._openings) > _MOST_OPENINGS:
            self._openings.popitem(last=False)

    def close(self, connection: socket.socket) -> None:
        """Forget a connection that is about to be closed."""
        if (segments := self._segments.pop(_cookie(connection), None)) is not None:
            segments.forget()

    def stop(self) -> None:
        """Close program and rings; connections that still use the filter only lose their times."""
        while self._closing:
            self._closing.pop()()

    def _owned(self, made: _Owned) -> _Owned:
        self._closing.append(made.close)
        return made


class _Closeable(Protocol):
    def close(self) -> None: ...


_Owned = TypeVar("_Owned", bound=_Closeable)


def _cookie(connection: socket.socket) -> int:
    """The kernel's unique number of a socket."""
    return int.from_bytes(connection.getsockopt(socket.SOL_SOCKET, _SO_COOKIE, 8), sys.byteorder)


def _addresses(connection: socket.socket) -> bytes:
    """The addresses of a connection in the form of a record: client, server, then their ports.

    Raises:
        OSError: it has been reset.
    """
    client, server = connection.getpeername(), connection.getsockname()
    ports = struct.pack("!HH", client[1], server[1])
    return _packed(client[0]) + _packed(server[0]) + ports


def _packed(address: str) -> bytes:
    if ":" in address:
        return socket.inet_pton(socket.AF_INET6, address.partition("%")[0])
    return _MAPPED + socket.inet_aton(address)
