"""A turn of the pump that busy processes interrupt, while further messages arrive."""

from __future__ import annotations

import os
import socket
from array import array
from collections.abc import Callable
from fcntl import ioctl
from termios import FIONREAD

import pytest
import trio

from drld.messages.front.coarse_stamps import ReadStamps
from drld.messages.segments import Segments
from drld.model import NS_PER_S
from testbed.messages.servers import Server
from tests.brokers.front import Clients, Clock, Front, Observer, front
from tests.brokers.raw_mqtt import RawClient, publish
from tests.unit.messages.made import message_limit

TOKEN_NS = 10_000_000
"""The time in which the bucket gets a token."""


class Interrupted(ReadStamps):
    """Gives each segment its time of arrival, and interrupts a read."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.interruption: Callable[[], None] | None = None
        self.foreign_ns = 0
        """How far the clock of the times is ahead of the pump's."""
        self._clock = clock
        self._sent: dict[int, list[tuple[int, int]]] = {}

    def sent(self, port: int, length: int) -> None:
        """A client sends a segment now."""
        self._sent.setdefault(port, []).append((length, self._clock() + self.foreign_ns))

    def receive(
        self, connection: socket.socket, segments: Segments, buffer: bytearray | memoryview
    ) -> int:
        if (interruption := self.interruption) is not None:
            self.interruption = None
            interruption()
        size = connection.recv_into(buffer)
        for length, time_ns in self._sent.pop(
            connection.getpeername()[1], ((size, self._clock()),)
        ):
            segments.append(length, time_ns)
        return size


def _port(client: RawClient) -> int:
    assert isinstance(client.stream, trio.SocketStream)
    port: int = client.stream.socket.getsockname()[1]
    return port


def _sends(running: Front, stamps: Interrupted, client: RawClient, data: bytes, held: int) -> None:
    """Send, and return when so many bytes have come to the front and are not read."""
    assert isinstance(client.stream, trio.SocketStream)
    stamps.sent(_port(client), len(data))
    os.write(client.stream.socket.fileno(), data)
    (sock,) = (
        it.client.link.sock
        for it in running.broker.connections
        if it.client.link.sock is not None and it.client.link.sock.getpeername()[1] == _port(client)
    )
    came = array("i", [0])
    while came[0] < held:
        ioctl(sock, FIONREAD, came)


@pytest.mark.parametrize("foreign_ns", [0, 3600 * NS_PER_S])
async def test_messages_of_an_interrupted_turn_are_charged_at_their_arrival(
    server: Server, observer: Observer, clients: Clients, foreign_ns: int
) -> None:
    """The turn reads one client. During the interruption another client sends, then the first one
    again; the turn reads only the latter message. All conform when they arrive.

    Times of a foreign clock do not count, and do not keep messages back.
    """
    clock = Clock()
    stamps = Interrupted(clock)
    limit = message_limit("limited/#", rate=NS_PER_S / TOKEN_NS, burst=1)
    async with front(server, "mqtt", limit, clock=clock, stamps=stamps) as running:
        one, other = [await clients.open(running, name) for name in ("one", "other")]
        counted = stamps.tally.stamped
        stamps.foreign_ns = foreign_ns
        message = publish("limited/a", b"0")

        def interruption() -> None:
            clock.ahead_ns += TOKEN_NS
            _sends(running, stamps, other, message, len(message))
            clock.ahead_ns += TOKEN_NS
            _sends(running, stamps, one, message, 2 * len(message))

        stamps.interruption = interruption
        stamps.sent(_port(one), len(message))
        await one.send(message)
        await observer.until(3)
        if not foreign_ns:
            assert running.waited() == 0
            assert stamps.tally.stamped == counted + 3
