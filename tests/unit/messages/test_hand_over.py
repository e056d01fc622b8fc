"""Wills of clients that drld sends away, with a real mosquitto: at a stop, or with their broker."""

from __future__ import annotations

import pytest
import trio

from drld.messages.front.client_end import END_NS
from testbed.messages.servers import Server
from tests.brokers.front import Clients, Clock, Front, Observer, front, until
from tests.brokers.raw_mqtt import DISCONNECT, RawClient, connect, packet, publish, text
from tests.unit.messages.made import message_limit, record


async def opened(running: Front, clients: Clients, name: str, version: int = 4) -> RawClient:
    """A client with a will, which the broker has accepted."""
    client = await clients.dial(running)
    await client.send(connect(name, will=f"will/{name}", version=version))
    got = await client.receive()
    assert got is not None
    assert (got.kind, got.body[1]) == (2, 0)
    return client


async def wills(running: Front, server: Server, observer: Observer, heard: int) -> list[str]:
    """The topics that came after the first messages, once all connections have ended."""
    await until(lambda: not running.broker.connections)
    straight = RawClient(await open_straight(server))
    await straight.send(connect("marker") + publish("marker", b"0", 1, 1))
    assert await straight.receive() is not None
    await straight.acknowledged([1], 1)
    await observer.until(heard + 1)
    while (topics := [it.topic for it in observer.heard[heard:]])[-1] != "marker":
        await observer.until(len(observer.heard) + 1)
    await straight.vanish()
    return topics[:-1]


async def open_straight(server: Server) -> trio.SocketStream:
    return await trio.open_tcp_stream(server.host, server.port)


@pytest.mark.parametrize("version", [4, 5])
async def test_a_client_that_is_sent_away_leaves_no_will(
    server: Server, observer: Observer, clients: Clients, version: int
) -> None:
    async with front(server, "mqtt", message_limit("limited/#")) as running:
        client = await opened(running, clients, "one", version)
        running.broker.leave()
        got = await client.receive()
        if version == 5:
            assert got == (14, 0, b"\x8b"), "DISCONNECT: server shutting down"
            got = await client.receive()
        assert got is None
        await client.vanish()
        assert await wills(running, server, observer, 0) == []


async def test_waiting_messages_are_delivered_and_acknowledged_before_the_end(
    server: Server, observer: Observer, clients: Clients
) -> None:
    limit = message_limit("limited/#", rate=0.01, burst=1)
    async with front(server, "mqtt", limit) as running:
        client = await opened(running, clients, "one")
        await client.send(b"".join(publish("limited/a", b"%d" % n, 1, n + 1) for n in range(30)))
        await running.until_waiting(29)
        running.broker.leave()
        hasten(running)
        await client.acknowledged([*range(1, 31)], 1)
        assert await client.receive() is None
        await client.vanish()
        assert await wills(running, server, observer, 30) == []
        assert observer.numbers("limited/a") == [*range(30)]


def hasten(running: Front) -> None:
    """Give the first limit a high rate."""
    fast = message_limit("limited/#", rate=1000, burst=1)
    running.datapath.program(1, record(fast), (), running.pump.reactor.clock())
    running.pump.wake()


async def test_a_client_that_does_not_answer_is_taken_for_dead(
    server: Server, observer: Observer, clients: Clients
) -> None:
    clock = Clock()
    async with front(server, "mqtt", message_limit("limited/#"), clock=clock) as running:
        dead = await opened(running, clients, "dead")
        alive = await opened(running, clients, "alive")
        running.broker.leave()
        assert await alive.receive() is None
        assert await dead.receive() is None
        clock.ahead_ns += END_NS
        await alive.vanish()
        assert await wills(running, server, observer, 0) == ["will/dead"]


@pytest.mark.parametrize(
    ("version", "last", "willed"),
    [
        (4, DISCONNECT, False),
        (4, b"", True),
        (5, DISCONNECT, False),
        (5, packet(0xE0, b"\4"), True),  # "Disconnect with will message" (3.14.2.1)
    ],
)
async def test_a_client_that_leaves_by_itself_meanwhile_has_the_end_that_it_made(
    server: Server,
    observer: Observer,
    clients: Clients,
    *,
    version: int,
    last: bytes,
    willed: bool,
) -> None:
    limit = message_limit("limited/#", rate=0.01, burst=1)
    async with front(server, "mqtt", limit) as running:
        client = await opened(running, clients, "one", version)
        none = b"\0" * (version == 5)
        for payload in (b"0", b"1"):
            await client.send(packet(0x30, text("limited/a") + none + payload))
        await running.until_waiting(1)
        running.broker.leave()
        (connection,) = running.broker.connections
        await until(lambda: connection.client.ended)
        await client.send(last)
        await client.vanish()
        hasten(running)
        assert await wills(running, server, observer, 2) == ["will/one"] * willed
