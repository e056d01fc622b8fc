"""Messages over one connection, and the arrival times that a source of stamps gives them."""

from __future__ import annotations

import socket
import struct
import time

from drld.messages.front.arrival import Stamps
from drld.messages.segments import Segments
from drld.police.arrival_time import LATEST_NS

from .topology import DEADLINE_S, Topology, wait_for

SERVERS = {"IPv4": "10.91.2.1", "IPv6": "fd91:2::1"}
MESSAGE = 10


def listening(topology: Topology, source: Stamps, server: str) -> socket.socket:
    """A listening socket in the sink's namespace; `::` takes IPv4 as well."""

    def make() -> socket.socket:
        family = socket.AF_INET6 if ":" in server else socket.AF_INET
        made = socket.socket(family, socket.SOCK_STREAM)
        if server == "::":
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.bind((server, 0))
        source.watch(made)
        made.listen()
        return made

    return topology.within("sink", make)


def client(topology: Topology, server: str) -> socket.socket:
    """A socket in the source's namespace that sends each message at once."""
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    made = topology.within("source", lambda: socket.socket(family, socket.SOCK_STREAM))
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def received(source: Stamps, connection: socket.socket, segments: Segments, size: int) -> bytes:
    """Read so many bytes."""
    connection.settimeout(DEADLINE_S)
    data = bytearray(size)
    view = memoryview(data)
    while view:
        read = source.receive(connection, segments, view)
        assert read
        view = view[read:]
    return bytes(data)


Sent = list[tuple[int, int]]
"""Before and after the sending of each message, ns."""


def send_apart(sender: socket.socket, messages: int, together: int = 1) -> Sent:
    """Send messages in segments of their own, `together` of them until all are acknowledged."""
    befores, sent = [], []
    for number in range(1, messages + 1):
        befores.append(time.monotonic_ns())
        sender.sendall(bytes([number % 256]) * MESSAGE)
        if number % together == 0 or number == messages:
            acknowledged(sender)
            sent += [(before_ns, time.monotonic_ns()) for before_ns in befores]
            befores.clear()
    return sent


def acknowledged(sender: socket.socket) -> None:
    """Wait until all that was sent has arrived."""
    assert wait_for(lambda: unacknowledged(sender), lambda left: left == 0) == 0


def unacknowledged(sender: socket.socket) -> int:
    """Segments on their way (tcpi_unacked)."""
    information = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 28)
    return int(struct.unpack_from("=I", information, 24)[0])


def check(sent: Sent, times: list[int], read_ns: int) -> None:
    """Each message arrived while it was sent, or as early as it is charged."""
    oldest_ns = read_ns - LATEST_NS
    for (before_ns, after_ns), time_ns in zip(sent, times, strict=True):
        assert max(before_ns, oldest_ns) <= time_ns <= max(after_ns, oldest_ns)


def arrivals(segments: Segments, count: int, read_ns: int, behind: int = 0) -> list[int]:
    """The times of so many messages behind so many others."""
    ends = range((behind + 1) * MESSAGE, (behind + count + 1) * MESSAGE, MESSAGE)
    return [segments.arrival(end, read_ns) for end in ends]
