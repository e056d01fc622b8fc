"""Bounds that hold whatever clients do: each test fails without its bound."""

from __future__ import annotations

import errno
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio

from drld.errors import DatapathError
from drld.messages.front.broker_front import BrokerFront
from drld.messages.front.coarse_stamps import ReadStamps
from drld.messages.front.connection import Connection
from drld.messages.front.link import READ_BYTES
from drld.messages.front.listeners import BACKLOG
from drld.messages.front.memory import MOST_QUEUED
from drld.messages.front.pump import HANDSHAKES
from drld.messages.front.tls import Tls
from drld.messages.nats import MAX_INFO
from drld.messages.spec import Excess
from drld.messages.topics import MAX_CACHED
from testbed.messages.servers import Server
from tests.brokers.front import Clients, Clock, Front, front, until
from tests.brokers.raw_mqtt import connect, publish
from tests.certificates import authority, signed
from tests.unit.messages.made import message_limit

LIMIT = message_limit("limited/#", rate=0.01, burst=5)


async def test_clients_that_reset_before_they_are_accepted_leave_nothing_behind(
    server: Server, clients: Clients
) -> None:
    async with front(server, "mqtt", LIMIT) as running:
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", running.port)) as stranger:
                stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await clients.open(running, "known")
        assert len(running.broker.connections) == 1
        assert len(running.datapath.gate._lanes) == 1


async def test_a_turn_takes_few_steps_of_handshakes(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signer = authority(tmp_path, "authority")
    certificate = signed(tmp_path, "server", signer, "serverAuth")
    context = ssl.create_default_context(cafile=signer.cert)
    steps: Counter[int] = Counter()
    receive = Tls.receive
    crowd = 4 * HANDSHAKES
    async with front(server, "mqtt", LIMIT, certificate=certificate) as running:

        def counted(tls: Tls, data: bytes) -> Iterator[tuple[bytes, int]]:
            steps[running.pump.read_ns] += not tls.shaken
            return receive(tls, data)

        monkeypatch.setattr(Tls, "receive", counted)
        plain = [await trio.open_tcp_stream("127.0.0.1", running.port) for _ in range(crowd)]
        await until(lambda: len(running.broker.connections) == crowd)
        streams = [trio.SSLStream(it, context, server_hostname="127.0.0.1") for it in plain]
        async with trio.open_nursery() as nursery:
            for stream in streams:
                nursery.start_soon(stream.do_handshake)
        assert sum(steps.values()) >= crowd
        assert max(steps.values()) <= HANDSHAKES
        for stream in streams:
            await trio.aclose_forcefully(stream)


async def test_a_client_that_refuses_the_certificate_is_named_so(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = signed(tmp_path, "server", authority(tmp_path, "authority"), "serverAuth")
    async with front(server, "mqtt", LIMIT, certificate=certificate) as running:
        context = ssl.create_default_context()

        def refuse() -> None:
            with socket.create_connection(("127.0.0.1", running.port)) as plain:
                # trio's streams send no alert.
                context.wrap_socket(plain, server_hostname="127.0.0.1")

        with pytest.raises(ssl.SSLCertVerificationError):
            await trio.to_thread.run_sync(refuse)
        await until(lambda: "client: refuses TLS or this certificate" in caplog.text)


class Talker:
    """A server of NATS that sends a line without an end."""

    host = "127.0.0.1"

    def __init__(self, port: int) -> None:
        self.port = port
        self.sent = 0

    async def serve(self, stream: trio.SocketStream) -> None:
        try:
            await stream.send_all(b"INFO ")
            while True:
                await stream.send_all(b"x" * READ_BYTES)
                self.sent += READ_BYTES
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass


async def test_a_line_of_the_server_is_bounded(clients: Clients) -> None:
    limit = message_limit("a", broker=("nats",))
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        talker = Talker(listener.socket.getsockname()[1])
        nursery.start_soon(partial(trio.serve_listeners, talker.serve, [listener]))
        async with front(talker, "nats", limit) as running:
            client = await clients.dial(running)
            with trio.fail_after(120):
                assert await client.stream.receive_some() == b""
            assert running.broker.journal.counts["server_malformed"] == 1
            await client.vanish()
            await until(lambda: not running.broker.connections)
        # The kernel's buffers take some more.
        assert talker.sent >= MAX_INFO
        nursery.cancel_scope.cancel()


async def test_the_clients_of_a_broker_share_one_cache_of_topics_and_it_is_bounded(
    server: Server, clients: Clients
) -> None:
    async with front(server, "mqtt", LIMIT) as running:
        cache = running.broker._shared.topics
        each = MAX_CACHED // 2
        for number in range(3):
            client = await clients.open(running, f"client{number}")
            topics = [f"{number}/{topic}" for topic in range(each)]
            await client.send(b"".join(publish(topic, b"") for topic in topics))
            await client.send(publish("x" * 300, b"", 1, 1))
            await client.acknowledged([1], 1)
            assert len(cache) <= MAX_CACHED
            if number == 1:
                assert len(cache) == 2 * each
        assert max(map(len, cache)) < 300


async def test_a_client_that_reads_no_acknowledgements_is_not_read(
    server: Server, clients: Clients
) -> None:
    """drld makes them itself, so the broker cannot hold such a client back."""
    limit = message_limit("drop", rate=0.01, burst=1, excess=Excess.DROP)
    count = 60_000
    async with front(server, "mqtt", limit) as running:
        client = await clients.dial(running)
        await client.send(connect("deaf", version=5))
        assert await client.receive() is not None
        (connection,) = running.broker.connections
        link = connection.client.link
        assert link.sock is not None
        # The kernel's buffers must be full before all messages are acknowledged. The client's is as
        # it was: one that shrinks under its window drops segments, and TCP may stand still.
        link.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        flood = b"".join(publish("drop", b"\0", 1, number) for number in range(1, count))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.stream.send_all, flood)
            await until(lambda: connection._share.paused or link.queued > 3 * MOST_QUEUED)
            assert link.queued <= MOST_QUEUED + READ_BYTES
            # Other clients go on, and so does this one once it reads.
            other = await clients.open(running, "other")
            await other.send(publish("free", b"1", 1, 1))
            await other.acknowledged([1], 1)
            left = {*range(1, count)}
            while left:
                got = await client.receive()
                assert got is not None
                left.remove(int.from_bytes(got.body[:2], "big"))
        assert not connection._share.paused


async def test_strangers_alone_never_use_up_the_memory(server: Server, clients: Clients) -> None:
    hold = 1 << 20
    half = connect("stranger", will="x" * 60_000)
    half = half[:1] + b"\xfc\xff\x0f" + half[4:]  # It says that it has 256 KiB.
    async with front(server, "mqtt", LIMIT, hold=hold) as running:
        other = await clients.open(running, "other")
        crowd = [await clients.dial(running) for _ in range(8)]
        async with trio.open_nursery() as nursery:
            for stranger in crowd:
                nursery.start_soon(stranger.stream.send_all, half + b"x" * (hold // 4 - len(half)))
            await until(lambda: sum(it._share.paused for it in running.broker.connections) == 8)
            assert running.broker.memory.part > hold // 20
            # A client whose frame comes in pieces is read.
            message = publish("free", b"x" * 1000, 1, 1)
            await other.send(message[:500])
            await until(
                lambda: any(it.client.stream.held == 500 for it in running.broker.connections)
            )
            await other.send(message[500:])
            await other.acknowledged([1], 1)
            nursery.cancel_scope.cancel()


def a_listener(running: Front) -> socket.socket:
    (listener,) = running.broker._listeners
    return listener


async def test_a_socket_that_rests_may_get_other_stamps(server: Server, clients: Clients) -> None:
    """The host lacked descriptors a moment ago, and then comes a reload."""
    clock = Clock()
    async with front(server, "mqtt", LIMIT, clock=clock) as running:
        broker, listener = running.broker, a_listener(running)
        broker._rest(listener, OSError(errno.EMFILE, "too many open files"))
        broker.change(broker.spec, ReadStamps())
        broker.listen([listener])
        clock.ahead_ns += 1_000_000_000
        client = await clients.open(running, "one")
        await client.send(publish("free", b"1", 1, 1))
        await client.acknowledged([1], 1)


async def test_an_address_that_is_about_to_close_takes_those_that_have_connected_and_no_more(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with front(server, "mqtt", LIMIT) as running:
        accepted: list[socket.socket] = []

        def accept(_: BrokerFront, listener: socket.socket) -> bool:
            accepted.append(listener)
            return len(accepted) < 3 * BACKLOG

        monkeypatch.setattr(BrokerFront, "_accept_one", accept)
        running.broker.empty([a_listener(running)])
        assert len(accepted) == BACKLOG + 1


async def test_half_a_frame_of_a_client_that_has_left_takes_no_memory(
    server: Server, clients: Clients
) -> None:
    """Its other messages may wait for hours."""
    half = publish("free", b"x" * 100_000)[:-1]
    async with front(server, "mqtt", LIMIT) as running:
        client = await clients.open(running, "leaver")
        await client.send(publish("limited/a", b"0") * 6 + half)
        (connection,) = running.broker.connections
        await until(lambda: connection.client.stream.held == len(half))
        await client.vanish()
        await until(lambda: connection.client.ended)
        await until(lambda: not connection.client.stream.held)
        assert running.datapath.waits(1).waiting == 1
        # Another client's turn settles nothing of it any more.
        await clients.open(running, "other")
        assert running.broker.memory.held == connection.lane.held_bytes


class Refused(ReadStamps):
    """A kernel that refuses the filter; to remove a filter that is not there is an error, too."""

    def watch(self, listener: socket.socket) -> None:
        raise DatapathError("timestamps: the kernel refuses the filter: out of memory")

    def unwatch(self, listener: socket.socket) -> None:
        raise FileNotFoundError(errno.ENOENT, "no filter")


async def test_a_listening_socket_without_a_filter_can_be_left(
    server: Server, clients: Clients
) -> None:
    async with front(server, "mqtt", LIMIT) as running:
        broker, listener = running.broker, a_listener(running)
        broker.change(broker.spec, Refused())
        broker.listen([listener])
        client = await clients.open(running, "one")
        await client.send(publish("free", b"1", 1, 1))
        await client.acknowledged([1], 1)
        broker.leave()
        assert broker._listeners == {}


async def test_a_connection_that_cannot_end_leaves_nothing_behind(
    server: Server, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake in the program raises an error each time that the connection settles to end."""
    limit = message_limit("limited/#", rate=0.001, burst=1)
    end = Connection._end

    def broken(self: Connection) -> None:
        if self.lane.client is not None and self.lane.client.id == "broken":
            raise ZeroDivisionError
        end(self)

    async with front(server, "mqtt", limit) as running:
        client, other = [await clients.open(running, name) for name in ("broken", "sound")]
        await client.send(publish("limited/a", b"1") * 3)
        await running.until_waiting(2)
        with monkeypatch.context() as patched:
            patched.setattr(Connection, "_end", broken)
            await client.vanish()
            await until(lambda: len(running.broker.connections) == 1)
        assert running.broker.memory.held == 0
        await until(lambda: running.datapath.waits(1).waiting == 0)
        assert running.broker.journal.counts["undelivered"] == 2
        await other.send(publish("free", b"1", 1, 1))
        await other.acknowledged([1], 1)
        await clients.open(running, "broken")
        assert running.pump.errors == 2
        running.pump.errors = 0
