"""Arrival times from the socket filter: every way in which bytes reach a connection."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from drld.messages.front.arrival import Stamps
from drld.messages.front.stamps import SocketStamps
from drld.messages.segments import Segments
from drld.police.arrival_time import LATEST_NS

from .topology import Topology, wait_for

pytestmark = pytest.mark.kernel

SERVERS = {"IPv4": "10.91.2.1", "IPv6": "fd91:2::1"}
MESSAGE = 10
TCP_DEFER_ACCEPT, TCP_FASTOPEN, MSG_FASTOPEN = 9, 23, 0x20000000
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def source() -> Iterator[SocketStamps]:
    made = SocketStamps()
    yield made
    made.stop()


def listening(topology: Topology, source: Stamps, server: str, backlog: int = 128) -> socket.socket:
    """A listening socket in the sink's namespace."""

    def make() -> socket.socket:
        family = socket.AF_INET6 if ":" in server else socket.AF_INET
        made = socket.socket(family, socket.SOCK_STREAM)
        made.bind((server, 0))
        source.watch(made)
        made.listen(backlog)
        return made

    return topology.within("sink", make)


def client(topology: Topology, server: str) -> socket.socket:
    """A socket in the source's namespace that sends each message at once."""
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    made = topology.within("source", lambda: socket.socket(family, socket.SOCK_STREAM))
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def read(source: Stamps, connection: socket.socket, segments: Segments, size: int) -> None:
    """Read so many bytes."""
    buffer = memoryview(bytearray(size))
    while size:
        received = source.receive(connection, segments, buffer[:size])
        assert received
        size -= received


Sent = list[tuple[int, int]]
"""Before and after the sending of each message, ns."""


def send_apart(sender: socket.socket, messages: int) -> Sent:
    """Send messages one by one, each when the one before has been acknowledged."""
    sent = []
    for number in range(messages):
        before_ns = time.monotonic_ns()
        sender.sendall(bytes([number]) * MESSAGE)
        wait_for(lambda: unacknowledged(sender), lambda left: left == 0)
        sent.append((before_ns, time.monotonic_ns()))
    return sent


def unacknowledged(sender: socket.socket) -> int:
    """tcpi_unacked: segments on their way."""
    return int.from_bytes(
        sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 28)[24:28], "little"
    )


@pytest.mark.parametrize("server", SERVERS.values(), ids=SERVERS)
def test_messages_that_waited_have_their_own_times(
    topology: Topology, source: SocketStamps, server: str
) -> None:
    """Before and after it is accepted; the time is in the kernel's receive path of the sending."""
    listener = listening(topology, source, server)
    sender = client(topology, server)
    sender.connect(listener.getsockname()[:2])
    sent = send_apart(sender, 5)
    connection, _ = listener.accept()
    segments = source.of(connection)
    sent += send_apart(sender, 5)
    read_ns = time.monotonic_ns()
    source.drain()
    read(source, connection, segments, 10 * MESSAGE)
    times = [segments.arrival(MESSAGE * (at + 1), read_ns) for at in range(10)]
    oldest_ns = read_ns - LATEST_NS
    for (before_ns, after_ns), time_ns in zip(sent, times, strict=True):
        assert max(before_ns, oldest_ns) <= time_ns <= max(after_ns, oldest_ns)
    assert (source.tally.stamped, source.tally.unstamped, source.lost) == (10, 0, 0)
    source.close(connection)
    for each in (connection, sender, listener):
        each.close()
