"""Two transports on the loopback interface, and what they say to each other."""

import select
import socket
from collections.abc import Callable
from typing import Any, cast

from drld.gossip.fabrics.pushsum_update import PUSHSUM
from drld.gossip.transport import Address, Transport
from drld.gossip.wire.control_codec import Control, Kind
from drld.gossip.wire.keyring import KeyRing
from drld.gossip.wire.session import Met
from drld.model import Quantity

from ...wire import pushsum, taken

UPDATE = pushsum(1, 258, 3.5, 0.25, Quantity.WEIGHT, epoch=5)
KIND = PUSHSUM.kind

DEADLINE_S = 10

RING = KeyRing({1: b"sixteen bytes it"}, use=1)

NO_KEYS = KeyRing()

Make = Callable[..., Transport]

Pair = tuple[Transport, Transport]


def introduce(a: Transport, b: Transport) -> None:
    """Make a and b peers of one another, by these names, and let them have a session."""
    a.update_peers({"b": b.address})
    b.update_peers({"a": a.address})
    a.send("b", KIND, [UPDATE])
    assert received(b, 1) == []
    assert received(a, 1) == [("b", Met(b.life))]
    assert received(b, 1) == [("a", Met(a.life))]
    assert (a.met, b.met, a.handshakes, b.handshakes) == (1, 1, 2, 1)
    a.bytes_sent = b.bytes_sent = 0


def received(transport: Transport, datagrams: int) -> list[tuple[str, Any]]:
    """The messages in the next datagrams."""
    got: list[tuple[str, Any]] = []
    datagrams_taken = 0

    class Counting:
        """The socket, and how often it gave something."""

        def recvfrom(self, size: int) -> tuple[bytes, Address]:
            nonlocal datagrams_taken
            datagram, address = real.recvfrom(size)
            datagrams_taken += 1
            return datagram, address

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    real = transport._socket
    transport._socket = cast(socket.socket, Counting())
    try:
        while datagrams_taken < datagrams:
            readable, _, _ = select.select([real], [], [], DEADLINE_S)
            assert readable, f"only {got} and {transport.rejected}"
            got += taken(transport)
    finally:
        transport._socket = real
    return got


def sealed(a: Transport) -> bytes:
    """A datagram from a to b."""
    datagram = a._by_name["b"].channel.seal(KIND, [UPDATE])
    assert datagram is not None
    return datagram


def sealed_control(a: Transport) -> bytes:
    datagram = a._by_name["b"].channel.seal(Kind.PROBE, Control(Kind.PROBE, 1, 2, 3))
    assert datagram is not None
    return datagram


def greeting(a: Transport, turn: int) -> bytes:
    datagram = a._by_name["b"].channel.greet(turn)
    assert datagram is not None
    return datagram
