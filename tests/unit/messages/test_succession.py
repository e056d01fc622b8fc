"""Connections of one client that follow each other, with a real mosquitto behind the front."""

from __future__ import annotations

import socket
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from hashlib import pbkdf2_hmac
from pathlib import Path

import pytest
import trio

from drld.messages.front.connection import Connection
from drld.messages.front.patience import OPENING_NS
from testbed.messages.servers import Server, mosquitto
from tests.brokers.front import Clients, Clock, Front, Observer, front, until
from tests.brokers.raw_mqtt import DISCONNECT, PINGREQ, RawClient, connect, packet, publish, text
from tests.local_daemons import ports
from tests.unit.messages.made import attach, message_limit

SLOW = message_limit("limited/#", rate=0.001, burst=1)
TRIES = 10


async def test_a_client_that_comes_back_loses_nothing_of_its_older_connection(
    server: Server, observer: Observer, clients: Clients
) -> None:
    """The broker ends the older one as soon as the newer one's CONNECT comes."""
    limit = message_limit("limited/#", rate=20, burst=1)
    async with front(server, "mqtt", limit) as running:
        for number in range(3):
            client = await clients.dial(running)
            await client.send(connect("same"))
            assert (await client.receive()) is not None
            await client.send(publish("limited/a", b"%d" % (2 * number)))
            await client.send(publish("limited/a", b"%d" % (2 * number + 1)))
            await running.until_waiting(1)
            if number % 2:
                await client.send(DISCONNECT)
            await client.vanish()
        await observer.until(6)
        assert observer.numbers("limited/a") == [*range(6)]


async def test_a_client_comes_back_with_the_identifier_that_the_broker_gave_it(
    server: Server, observer: Observer, clients: Clients
) -> None:
    async with front(server, "mqtt", message_limit("limited/#", rate=20, burst=1)) as running:
        first = await clients.dial(running)
        await first.send(connect("", version=5))
        said = await first.receive()
        assert said is not None
        at = said.body.index(b"\x12") + 1
        size = int.from_bytes(said.body[at : at + 2], "big")
        name = said.body[at + 2 : at + 2 + size].decode()
        none = b"\0"  # no properties
        await first.send(
            b"".join(publish("limited/a", none + b"%d" % number) for number in range(3))
        )
        await running.until_waiting(2)
        await first.vanish()
        second = await clients.dial(running)
        await second.send(connect(name, version=5))
        assert await second.receive() is not None
        assert running.broker.journal.counts["undelivered"] == 0
        await observer.until(3)
        assert observer.numbers("limited/a") == [*range(3)]


async def test_a_client_that_floods_keeps_no_newer_connection_waiting(
    server: Server, observer: Observer, clients: Clients
) -> None:
    """A broker ends the older one when the newer one comes: session takeover."""
    async with front(server, "mqtt", message_limit("limited/#", rate=50, burst=1)) as running:
        older = await clients.open(running, "same")
        await older.send(b"".join(publish("limited/a", b"%d" % number) for number in range(10)))
        await running.until_waiting(1)
        newer = await clients.dial(running)
        await newer.send(connect("same"))

        async def flood() -> None:
            number = 10
            with suppress(trio.BrokenResourceError):
                while True:
                    await older.send(publish("limited/a", b"%d" % number))
                    number += 1
                    await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood)
            assert await newer.receive() == (2, 0, b"\0\0")
            # Nor does it end the newer one, or come back into it.
            await newer.send(publish("free", b"x", 1, 1))
            await newer.acknowledged([1], 1)
            nursery.cancel_scope.cancel()
        await until(lambda: len(running.broker.connections) == 1)
        await observer.until(11)
        heard = observer.numbers("limited/a")
        assert heard == [*range(len(heard))]
        assert running.broker.journal.counts["taken_over"] == 1


async def test_a_client_that_floods_and_leaves_loses_nothing_when_it_comes_back(
    server: Server, observer: Observer, clients: Clients
) -> None:
    """Most of its messages are in the buffer of its own host when the newer connection comes."""
    messages = 200
    async with front(server, "mqtt", SLOW, hold=1 << 16) as running:
        older = await clients.open(running, "same")
        assert isinstance(older.stream, trio.SocketStream)
        # trio has it hold no more than 16 kB that are not sent.
        older.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, 1 << 30)
        payload = b" " * 1024
        for number in range(messages):
            await older.send(publish("limited/a", b"%d" % number + payload))
        await older.send(DISCONNECT)
        await running.until_waiting(1)
        await until(lambda: running.broker.memory.held > 1 << 14)
        await older.vanish()
        newer = await come_back(running, clients)
        no_limit(running)
        assert await newer.receive() == (2, 0, b"\0\0")
        await observer.until(messages)
        assert observer.numbers("limited/a") == [*range(messages)]


async def with_one_that_waits(running: Front, clients: Clients) -> None:
    """A client of the name "same" has a message that waits."""
    older = await clients.open(running, "same")
    await older.send(publish("limited/a", b"0") + publish("limited/a", b"1"))
    await running.until_waiting(1)
    await older.vanish()


async def come_back(running: Front, clients: Clients, more: bytes = b"") -> RawClient:
    """A client of this name that drld has read, and whose CONNECT waits."""
    before = {*running.broker.connections}
    client = await clients.dial(running)
    await client.send(connect("same", will="will") + more)
    await until(lambda: any(it._frames is not None for it in found(running, before)))
    return client


def found(running: Front, before: set[Connection]) -> set[Connection]:
    """The connections that have come since."""
    return running.broker.connections - before


def no_limit(running: Front) -> None:
    """Let all messages leave that wait."""
    attach(running.datapath, now_ns=running.pump.reactor.clock())
    running.pump.wake()


async def test_a_client_that_tries_again_and_again_has_two_connections_at_most(
    server: Server, observer: Observer, clients: Clients
) -> None:
    """Its older message may wait for hours, and it gives up each try after some seconds."""
    async with front(server, "mqtt", SLOW) as running:
        await with_one_that_waits(running, clients)
        for number in range(TRIES):
            client = await come_back(running, clients)
            if number < TRIES - 1:
                await client.vanish()
        await until(lambda: len(running.broker.connections) == 2)
        no_limit(running)
        got = await client.receive()
        assert got is not None
        assert got.kind == 2, "CONNACK"
        await client.send(publish("free", b"2", 1, 1))
        await client.acknowledged([1], 1)
        await observer.until(3)
        # The broker does not see the tries that were given up, and so publishes no will of theirs.
        assert [it.payload for it in observer.heard] == [b"0", b"1", b"2"]
        assert running.broker.journal.counts["too_slow"] == 0


async def test_messages_that_come_with_a_try_are_not_lost(
    server: Server, observer: Observer, clients: Clients
) -> None:
    async with front(server, "mqtt", SLOW) as running:
        await with_one_that_waits(running, clients)
        for number in range(TRIES):
            # With a CONNECT, or in a piece of their own behind it.
            message = publish("free", b"%d" % (2 + number)) + DISCONNECT
            client = await come_back(running, clients, message if number % 2 else b"")
            if not number % 2:
                await client.send(message)
            await client.vanish()
        no_limit(running)
        await observer.until(2 + TRIES)
        assert [int(it.payload) for it in observer.heard] == [*range(2 + TRIES)]
        await until(lambda: not running.broker.connections)


async def test_a_try_that_fails_lets_no_later_one_pass_before_the_messages(
    server: Server, observer: Observer, clients: Clients
) -> None:
    async with front(server, "mqtt", SLOW) as running:
        await with_one_that_waits(running, clients)
        before = {*running.broker.connections}
        await come_back(running, clients, publish("free", b"x"))
        (failing,) = found(running, before)
        last = await come_back(running, clients)
        failing.fail()
        running.pump.wake()
        await until(lambda: len(running.broker.connections) == 2)
        no_limit(running)
        assert await last.receive() == (2, 0, b"\0\0")
        await observer.until(2)
        assert observer.numbers("limited/a") == [0, 1]
        assert running.broker.journal.counts["undelivered"] == 0


def connect_as(user: str, password: str) -> bytes:
    """CONNECT of MQTT 3.1.1 with the identifier "same"."""
    body = text("MQTT") + b"\4\xc2\0\0" + text("same") + text(user) + text(password)
    return packet(0x10, body)


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[Server]:
    """A broker that accepts the user "known" alone."""
    salt = bytes(12)
    digest = pbkdf2_hmac("sha512", b"secret", salt, 101, 64)
    passwords = tmp_path / "passwords"
    passwords.write_text(f"known:$7$101${b64encode(salt).decode()}${b64encode(digest).decode()}\n")
    passwords.chmod(0o600)
    settings = f"allow_anonymous false\npassword_file {passwords}\n"
    (port,) = ports(1, socket.SOCK_STREAM)
    with mosquitto(tmp_path, port, settings) as running:
        yield running


async def known(running: Front, clients: Clients) -> RawClient:
    """A client that the broker has accepted."""
    client = await clients.dial(running)
    await client.send(connect_as("known", "secret"))
    assert await client.receive() == (2, 0, b"\0\0")
    return client


def waiting(running: Front) -> int:
    """Connections whose CONNECT waits."""
    return sum(it._frames is not None for it in running.broker.connections)


async def test_a_stranger_with_the_identifier_of_a_client_takes_nothing_from_it(
    strict: Server, clients: Clients
) -> None:
    """The broker would refuse the stranger, and leave the client alone."""
    async with front(strict, "mqtt", SLOW) as running:
        victim = await known(running, clients)
        await victim.send(b"".join(publish("limited/a", b"x", 1, it) for it in (1, 2)))
        await victim.acknowledged([1], 1)
        stranger = await clients.dial(running)
        await stranger.send(connect_as("known", "guess"))
        await until(lambda: waiting(running) == 1)
        await victim.send(publish("limited/a", b"x", 1, 3) + PINGREQ)
        assert await victim.receive() == (13, 0, b"")
        await running.until_waiting(2)
        no_limit(running)
        await victim.acknowledged([2, 3], 1)
        assert await stranger.receive() == (2, 0, b"\0\5"), "CONNACK: not authorized"
        assert running.broker.journal.counts["taken_over"] == 0


async def test_a_stranger_neither_ends_nor_outlasts_a_try_of_the_client(
    strict: Server, clients: Clients
) -> None:
    clock = Clock()
    async with front(strict, "mqtt", SLOW, clock=clock) as running:
        older = await known(running, clients)
        await older.send(publish("limited/a", b"0") + publish("limited/a", b"1"))
        await running.until_waiting(1)
        await older.vanish()
        again = await clients.dial(running)
        await again.send(connect_as("known", "secret"))
        await until(lambda: waiting(running) == 1)

        def has(count: int) -> bool:
            return waiting(running) == count

        for number in range(TRIES):
            stranger = await clients.dial(running)
            await stranger.send(connect_as("known", f"guess {number % 2}"))
            await until(lambda: len(running.broker.connections) >= 3)
            await until(partial(has, 2 + min(number, 1)))
            await stranger.vanish()
        clock.ahead_ns += OPENING_NS
        await until(lambda: len(running.broker.connections) == 2)
        no_limit(running)
        # The timer that the daemon sets does not know this clock; a new connection wakes it.
        await clients.dial(running)
        assert await again.receive() == (2, 0, b"\0\0")
        assert running.broker.journal.counts["undelivered"] == 0


async def test_a_stranger_that_has_been_refused_leaves_no_gap_in_the_order(
    strict: Server, clients: Clients
) -> None:
    async with front(strict, "mqtt", SLOW) as running:
        older = await known(running, clients)
        stranger = await clients.dial(running)
        await stranger.send(connect_as("known", "guess"))
        assert await stranger.receive() == (2, 0, b"\0\5")
        await stranger.vanish()
        await until(lambda: len(running.broker.connections) == 1)
        await older.send(publish("limited/a", b"0") + publish("limited/a", b"1"))
        await running.until_waiting(1)
        newer = await clients.dial(running)
        await newer.send(connect_as("known", "secret"))
        await until(lambda: waiting(running) == 1 or not running.datapath.waits(1).waiting)
        no_limit(running)
        assert await newer.receive() == (2, 0, b"\0\0")
        assert running.broker.journal.counts["undelivered"] == 0


async def test_tries_at_a_broker_that_stands_still_end_with_the_time_of_their_opening(
    server: Server, clients: Clients
) -> None:
    clock = Clock()
    async with front(server, "mqtt", SLOW, clock=clock) as running:
        server.freeze()
        for number in range(TRIES):
            client = await clients.dial(running)
            # A broker ends the older of two connections, so each is the first of its name.
            await client.send(connect(f"client{number}"))
            await client.vanish()
        await until(lambda: len(running.broker.connections) == TRIES)
        clock.ahead_ns += OPENING_NS
        await clients.dial(running)
        await until(lambda: len(running.broker.connections) == 1)
        assert running.broker.memory.held == 0
        server.thaw()
