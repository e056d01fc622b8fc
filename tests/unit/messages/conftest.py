"""Fixtures of the tests of a front with a real mosquitto behind it."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from testbed.messages.servers import Server, mosquitto
from tests.brokers.front import Clients, Observer
from tests.local_daemons import ports


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (port,) = ports(1, socket.SOCK_STREAM)
    with mosquitto(tmp_path, port) as running:
        yield running


@pytest.fixture
def observer(server: Server) -> Iterator[Observer]:
    with closing(Observer(server.port)) as watching:
        yield watching


@pytest.fixture
async def clients() -> AsyncIterator[Clients]:
    made = Clients()
    yield made
    for client in made.opened:
        await client.vanish()
