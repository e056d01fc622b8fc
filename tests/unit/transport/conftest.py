"""Sockets that are closed afterwards."""

import socket
from collections.abc import Iterator
from random import Random

import pytest

from drld.gossip.transport import Transport
from drld.gossip.wire.keyring import KeyRing

from .pair import RING, Make, Pair, introduce


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes transports on free ports; closes them afterwards."""
    made = []

    def make(me: str, host: str = "127.0.0.1", ring: KeyRing = RING) -> Transport:
        transport = Transport((host, 0), me, {}, ring, Random(me))
        made.append(transport)
        return transport

    yield make
    for transport in made:
        transport.close()


@pytest.fixture
def pair(make: Make) -> Pair:
    """Two that have a session."""
    a, b = make("a"), make("b")
    introduce(a, b)
    return a, b


@pytest.fixture
def stranger() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(("127.0.0.1", 0))
        yield made
