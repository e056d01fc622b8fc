"""Strangers at a front: they say nothing, say half, come in crowds, or are refused."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import trio

from drld.messages.front.link import READ_BYTES
from drld.messages.front.opening import STRANGER_BYTES
from drld.messages.front.patience import FRAME_NS, OPENING_NS
from drld.messages.mqtt_returns import MqttReturns
from testbed.messages.servers import Server, mosquitto, nats_server
from tests.brokers.front import Clients, Clock, Front, front, until
from tests.brokers.raw_mqtt import PATIENCE_S, RawClient, connect, packet, publish
from tests.local_daemons import ports
from tests.unit.messages.made import message_limit

LIMIT = message_limit("limited/#", rate=0.01, burst=5)


async def ended(client: RawClient) -> None:
    """Return when the client has been sent the end, or a reset."""
    with suppress(trio.BrokenResourceError):
        assert await client.receive() is None


def refused(running: Front, count: int) -> bool:
    """Whether so many connections have been refused."""
    return running.broker.journal.counts["refused"] == count


def arrived(running: Front) -> int:
    """Messages that have come to the first limit."""
    return running.datapath.read(1, running.pump.reactor.clock()).arrived_items


@pytest.mark.parametrize("said", [b"", connect("half")[:1], connect("half")[:-1]])
async def test_a_client_that_does_not_connect_is_ended_and_counted(
    server: Server, clients: Clients, said: bytes
) -> None:
    clock = Clock()
    async with front(server, "mqtt", LIMIT, clock=clock) as running:
        known = await clients.open(running, "known")
        strangers = [await clients.dial(running) for _ in range(3)]
        for stranger in strangers:
            if said:
                await stranger.send(said)
        await until(lambda: running.broker.memory.held == 3 * len(said))
        clock.ahead_ns += OPENING_NS // 2
        await known.send(publish("free", b"1", 1, 1))
        await known.acknowledged([1], 1)
        assert running.broker.journal.counts["too_slow"] == 0
        clock.ahead_ns += OPENING_NS
        await known.send(publish("free", b"2", 1, 2))
        await known.acknowledged([2], 1)
        for stranger in strangers:
            await ended(stranger)
        assert running.broker.journal.counts["too_slow"] == 3
        assert len(running.broker.connections) == 1
        assert running.broker.memory.held == 0


async def test_a_frame_that_is_never_complete_ends_its_connection(
    server: Server, clients: Clients
) -> None:
    clock = Clock()
    async with front(server, "mqtt", LIMIT, clock=clock) as running:
        slow, stuck = [await clients.open(running, name) for name in ("slow", "stuck")]
        frames = [publish("free", b"%d" % number, 1, number) for number in (1, 2)]
        await stuck.send(frames[0][:-1])
        await slow.send(frames[0][:-1])
        await until(lambda: running.broker.memory.held == 2 * len(frames[0][:-1]))
        # One that goes on is looked at again later.
        await slow.send(frames[0][-1:] + frames[1][:-1])
        await slow.acknowledged([1], 1)
        clock.ahead_ns += FRAME_NS
        other = await clients.open(running, "other")
        await ended(stuck)
        assert running.broker.journal.counts["too_slow"] == 1
        await slow.send(frames[1][-1:])
        await slow.acknowledged([2], 1)
        clock.ahead_ns += FRAME_NS
        await other.send(publish("free", b"3", 1, 3))
        await other.acknowledged([3], 1)
        assert running.broker.journal.counts["too_slow"] == 1


async def test_connections_beyond_the_bound_are_refused_and_counted(
    server: Server, clients: Clients
) -> None:
    async with front(server, "mqtt", LIMIT, max_connections=3) as running:
        first, *_ = [await clients.open(running, f"client{number}") for number in range(3)]
        for number in range(2):
            await ended(await clients.dial(running))
            await until(partial(refused, running, number + 1))
        await first.vanish()
        await until(lambda: len(running.broker.connections) == 2)
        await clients.open(running, "next")


async def test_half_frames_of_many_clients_stay_within_hold(
    server: Server, clients: Clients
) -> None:
    hold = 1 << 20
    frame = publish("free", b"x" * (hold // 2))
    async with front(server, "mqtt", LIMIT, hold=hold) as running:
        crowd = [await clients.open(running, f"client{number}") for number in range(12)]
        other = await clients.open(running, "other")
        async with trio.open_nursery() as nursery:
            for client in crowd:
                nursery.start_soon(client.stream.send_all, frame[:-1])
            await until(lambda: running.broker.memory.held > hold // 2)
            for number in range(1, 50):
                await other.send(publish("free", b"1", 1, number))
                await other.acknowledged([number], 1)
                # Each may read once more before it is paused, and one goes on beyond `hold`.
                assert running.broker.memory.held <= hold + len(frame) + 12 * READ_BYTES
            nursery.cancel_scope.cancel()


async def test_strangers_are_read_in_small_pieces(server: Server, clients: Clients) -> None:
    """The bytes that wait for the broker's verdict are bounded for each client."""
    async with front(server, "mqtt", LIMIT) as running:
        server.freeze()
        crowd = [await clients.dial(running) for _ in range(4)]
        flood = publish("limited/a", b"x" * 100) * 1000
        async with trio.open_nursery() as nursery:
            for number, client in enumerate(crowd):
                nursery.start_soon(client.stream.send_all, connect(f"{number}") + flood)
            await until(lambda: len(running.broker.connections) == 4)
            await until(lambda: all(it._frames is not None for it in running.broker.connections))
            assert running.broker.memory.held <= 4 * STRANGER_BYTES
            assert arrived(running) == 0
            server.thaw()
            await until(lambda: arrived(running) > 0)
            nursery.cancel_scope.cancel()


async def test_messages_of_a_client_that_the_broker_refuses_use_no_tokens(
    tmp_path: Path, clients: Clients
) -> None:
    """The messages come in one piece with the CONNECT, before the broker has seen it."""
    (port,) = ports(1, socket.SOCK_STREAM)
    with mosquitto(tmp_path, port, "allow_anonymous false\n") as strict:
        async with front(strict, "mqtt", LIMIT) as running:
            client = await clients.dial(running)
            await client.send(connect("stranger") + publish("limited/a", b"1") * 20)
            got = await client.receive()
            assert got is not None
            assert (got.kind, got.body) == (2, b"\0\5"), "CONNACK: not authorized"
            await ended(client)
            await client.vanish()
            await until(lambda: not running.broker.connections)
            assert arrived(running) == 0


def nats_connect(user: str | None, *, verbose: bool = False) -> bytes:
    said = f'"verbose":{str(verbose).lower()},"pedantic":false'
    if user is not None:
        said += f',"user":"{user}","pass":"secret"'
    return f"CONNECT {{{said}}}\r\n".encode()


class RawNats:
    """A client of NATS that sends exactly these bytes."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.said = b""

    async def until(self, text: bytes | None, count: int = 1) -> bytes:
        """The server's output, once it has this text `count` times; None: at its end."""
        with trio.fail_after(PATIENCE_S):
            while text is None or self.said.count(text) < count:
                try:
                    data = await self.stream.receive_some()
                except trio.BrokenResourceError:
                    data = b""
                if not data:
                    assert text is None, self.said
                    break
                self.said += data
        return self.said


PUB = b"PUB limited.a 1\r\nx\r\n"
NATS_LIMIT = message_limit("limited.>", rate=1000, burst=50, broker=("nats",))


@pytest.fixture
def strict_nats(tmp_path: Path) -> Iterator[Server]:
    (port,) = ports(1, socket.SOCK_STREAM)
    with nats_server(tmp_path, port, "--user", "known", "--pass", "secret") as running:
        yield running


async def test_messages_of_a_client_that_nats_refuses_use_no_tokens(strict_nats: Server) -> None:
    async with front(strict_nats, "nats", NATS_LIMIT) as running:
        for begin in (nats_connect("wrong"), nats_connect(None), b"", b"PING\r\n"):
            client = RawNats(await trio.open_tcp_stream("127.0.0.1", running.port))
            await client.stream.send_all(begin + PUB * 20)
            assert b"-ERR" in await client.until(None)
            await client.stream.aclose()
        await until(lambda: not running.broker.connections)
        assert arrived(running) == 0


async def test_the_user_of_a_client_of_nats_is_the_one_that_the_server_has_accepted(
    strict_nats: Server,
) -> None:
    """Another one would use the bucket of a client that it is not."""
    async with front(strict_nats, "nats", NATS_LIMIT) as running:
        client = RawNats(await trio.open_tcp_stream("127.0.0.1", running.port))
        said = b'{"user":"victim","User":"known","pass":"secret","verbose":false}'
        await client.stream.send_all(b"CONNECT " + said + b"\r\nPING\r\n")
        await client.until(b"PONG")
        (connection,) = running.broker.connections
        assert connection.lane.client is not None
        assert connection.lane.client.user == "known"
        await client.stream.aclose()


@pytest.mark.parametrize("verbose", [False, True])
async def test_a_client_of_nats_hears_only_the_answers_to_its_own_pings(
    strict_nats: Server, verbose: bool
) -> None:
    async with front(strict_nats, "nats", NATS_LIMIT) as running:
        client = RawNats(await trio.open_tcp_stream("127.0.0.1", running.port))
        begin = nats_connect("known", verbose=verbose) + b"SUB limited.> 1\r\n"
        await client.stream.send_all(begin + PUB * 20 + b"PING\r\nPUB limited.b 3\r\nend\r\n")
        said = await client.until(b"MSG limited.b 1 3\r\nend\r\n")
        assert said.count(b"MSG limited.a") == 20
        assert said.count(b"PONG") == 1
        assert arrived(running) == 21
        await client.stream.send_all(b"PING\r\n")
        await client.until(b"PONG", 2)
        if verbose:
            await client.until(b"+OK", 23)
        assert client.said.count(b"+OK") == verbose * 23
        await client.stream.aclose()


async def test_a_client_of_nats_may_publish_without_connect(tmp_path: Path) -> None:
    """A server without users accepts it, and so does drld."""
    (port,) = ports(1, socket.SOCK_STREAM)
    with nats_server(tmp_path, port) as lenient:
        async with front(lenient, "nats", NATS_LIMIT) as running:
            client = RawNats(await trio.open_tcp_stream("127.0.0.1", running.port))
            await client.stream.send_all(PUB)
            await until(lambda: arrived(running) == 1)
            await client.stream.aclose()


def test_auth_packets_come_before_the_verdict() -> None:
    """MQTT 5, 4.12: the broker sends AUTH, perhaps in pieces, and then CONNACK."""
    auth = packet(0xF0, b"\x18\0")
    for code, accepted in ((b"\0", True), (b"\x87", False)):
        returns = MqttReturns()
        for byte in auth + packet(0x20, b"\0" + code + b"\0"):
            assert not returns.accepted
            returns.feed(bytes([byte]))
        assert returns.accepted is accepted
