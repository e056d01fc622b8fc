"""The front of a real mosquitto: order, loss, wills, pressure, and the ends of connections."""

from __future__ import annotations

import resource
import select
import socket
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import trio

from drld.messages.front.broker_end import BrokerEnd
from drld.messages.spec import Excess
from drld.model import NS_PER_S
from drld.spec import LimitSpec
from testbed.messages.servers import Server, mosquitto
from tests.brokers.front import Clients, Clock, Front, Observer, front, until
from tests.brokers.raw_mqtt import DISCONNECT, PINGREQ, RawClient, connect, packet, publish, text
from tests.local_daemons import ports
from tests.unit.messages.made import attach, message_limit, record


def writable(sock: trio.socket.SocketType) -> bool:
    """Whether the client could send now."""
    return bool(select.select([], [sock], [], 0)[1])


def raised(running: Front, rate: float) -> None:
    """Give the first limit another rate, as a reload does."""
    limit = message_limit("limited/#", rate=rate, burst=5)
    running.datapath.program(1, record(limit), (), running.pump.reactor.clock())
    running.pump.wake()


async def test_a_burst_passes_and_the_rest_comes_at_the_rate(
    server: Server, observer: Observer, clients: Clients
) -> None:
    limit = message_limit("limited/#", rate=50, burst=5)
    async with front(server, "mqtt", limit) as running:
        client = await clients.open(running, "one")
        begun = trio.current_time()
        await client.send(b"".join(publish("limited/a", b"%d" % n) for n in range(20)))
        await observer.until(20)
        # No earlier: the burst, and then one each 20 ms.
        assert trio.current_time() - begun >= 15 / 50
        assert observer.numbers("limited/a") == [*range(20)]
        assert running.waited() == 15
        assert running.datapath.waits(1).waiting == 0


async def test_another_rate_holds_for_thousands_that_wait_and_without_the_limit_they_leave(
    server: Server, observer: Observer, clients: Clients
) -> None:
    def limit(rate: float) -> LimitSpec:
        return message_limit("limited/#", rate=rate, burst=26)

    count = 5200
    async with front(server, "mqtt", limit(11)) as running:
        client = await clients.open(running, "one")
        await client.send(b"".join(publish("limited/a", b"%d" % n) for n in range(count)))
        # Until all have been read: what comes later would leave at the lower rate, too.
        await until(lambda: running.datapath.waits(1).waiting + len(observer.heard) == count)
        begun, now_ns = trio.current_time(), running.pump.reactor.clock()
        attach(running.datapath, limit(2), now_ns=now_ns)
        left = count - running.datapath.waits(1).waiting
        await observer.until(left + 5)
        # One may have been due at the former rate; each further one takes half a second.
        assert trio.current_time() - begun >= (5 - 1) / 2
        assert running.datapath.waits(1).waiting > 4000
        attach(running.datapath, now_ns=running.pump.reactor.clock())
        await observer.until(count)
        assert observer.numbers("limited/a") == [*range(count)]
        await until(lambda: running.broker.memory.held == 0)


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_thousands_arrive_once_and_in_their_order(
    server: Server, observer: Observer, clients: Clients, qos: int
) -> None:
    """The frames of each client are cut at random, with other frames between."""
    rng, each, count = Random(qos), 1500 if qos < 2 else 300, 4
    limit = message_limit("limited/#", rate=20_000, burst=50)

    async def publisher(running: Front, number: int) -> None:
        client = await clients.open(running, f"client{number}")
        data = bytearray()
        for index in range(each):
            data += publish(f"limited/{number}", b"%d" % index, qos, index + 1)
            data += PINGREQ * (rng.random() < 0.05)
        async with trio.open_nursery() as nursery:
            if qos == 1:
                nursery.start_soon(acknowledged, client)
            while data:
                size = rng.choice((1, 7, 300, 5000))
                await client.send(bytes(data[:size]))
                del data[:size]
        if qos == 2:
            await acknowledged(client)
        await client.send(DISCONNECT)
        await client.vanish()

    async def acknowledged(client: RawClient) -> None:
        left = [*range(1, each + 1)]
        while left:
            got = await client.receive()
            assert got is not None
            if got.kind == 5:
                await client.send(b"\x62\x02" + got.body[:2])
            elif got.kind in (4, 7):
                assert got.kind == (4 if qos == 1 else 7)
                # A broker acknowledges in the order in which it got them.
                assert left.pop(0) == int.from_bytes(got.body[:2], "big")

    async with front(server, "mqtt", limit) as running:
        async with trio.open_nursery() as nursery:
            for number in range(count):
                nursery.start_soon(publisher, running, number)
        await observer.until(each * count)
        for number in range(count):
            assert observer.numbers(f"limited/{number}") == [*range(each)]
        assert running.waited() > 0
        await until(lambda: not running.broker.connections)
        assert running.broker.memory.held == 0


@pytest.mark.parametrize("leaves", ["disconnect", "vanish", "reset"])
async def test_messages_of_a_client_arrive_after_it_has_left(
    server: Server, observer: Observer, clients: Clients, leaves: str
) -> None:
    limit = message_limit("limited/#", rate=0.01, burst=1)
    async with front(server, "mqtt", limit) as running:
        client = await clients.open(running, "leaver", will="will")
        await client.send(b"".join(publish("limited/a", b"%d" % n) for n in range(51)))
        await running.until_waiting(50)
        if leaves == "disconnect":
            await client.send(DISCONNECT)
        await (client.reset() if leaves == "reset" else client.vanish())
        assert running.datapath.waits(1).waiting == 50
        raised(running, 1000)
        willed = leaves != "disconnect"
        heard = await observer.until(51 + willed)
        await until(lambda: not running.broker.connections)
        assert observer.numbers("limited/a") == [*range(51)]
        # The will is the last, and there is one; without one, nothing follows.
        assert [it.topic for it in heard[51:]] == ["will"] * willed
        assert running.broker.journal.counts["undelivered"] == 0


async def test_a_client_that_waits_longer_than_its_keep_alive_keeps_its_connection(
    server: Server, observer: Observer, clients: Clients
) -> None:
    """One of 1 s: mosquitto ends it after 1.5 s of silence. The client gets no answer to a ping
    that it has not sent, and one to each that it has."""
    limit = message_limit("limited/#", rate=0.2, burst=1)
    async with front(server, "mqtt", limit) as running:
        client = await clients.open(running, "patient", keep_alive_s=1)
        await client.send(b"".join(publish("limited/a", b"%d" % n) for n in range(2)))
        await client.send(PINGREQ)
        assert (await client.receive()) == (13, 0, b"")
        await observer.until(2)
        await client.send(publish("free", b"2", 1, 7))
        got = await client.receive()
        assert got is not None
        assert got.kind == 4, "nothing but the acknowledgement"


@pytest.mark.parametrize(("version", "told_s"), [(4, 10), (5, 10), (5, 0), (5, 3600)])
async def test_drld_pings_well_before_the_broker_takes_a_client_for_dead(
    tmp_path: Path, clients: Clients, monkeypatch: pytest.MonkeyPatch, version: int, told_s: int
) -> None:
    """The broker goes by 10 s, which it says to clients of MQTT 5. It may have heard nothing for
    10 s when a message comes that waits, and ends the connection 5 s later."""
    pings: list[BrokerEnd] = []

    def ping(end: BrokerEnd) -> None:
        pings.append(end)

    monkeypatch.setattr(BrokerEnd, "ping", ping)
    limit, clock = message_limit("limited/#", rate=0.01, burst=1), Clock()
    (port,) = ports(1, socket.SOCK_STREAM)
    with mosquitto(tmp_path, port, "max_keepalive 10\n") as strict:
        async with front(strict, "mqtt", limit, clock=clock) as running:
            client = await clients.dial(running)
            await client.send(connect("patient", keep_alive_s=told_s, version=version))
            got = await client.receive()
            assert got is not None
            assert (got.kind, got.body[1]) == (2, 0)
            none = b"\0" * (version == 5)
            await client.send(packet(0x30, text("limited/a") + none) * 2)
            await running.until_waiting(1)
            for number in range(3):
                clock.ahead_ns += 10 * NS_PER_S // 4
                await client.send(PINGREQ)
                assert await client.receive() == (13, 0, b"")
                assert len(pings) == number + 1


async def test_a_message_that_expires_while_it_waits_is_not_delivered(
    server: Server, clients: Clients
) -> None:
    """As at the broker itself (MQTT 5, 3.3.2.3.3): others come with the rest of their interval."""
    limit, clock = message_limit("limited/#", rate=0.1, burst=1), Clock()

    def message(number: int, expiry_s: int) -> bytes:
        body = text("limited/a") + bytes([0, number]) + b"\5\2" + expiry_s.to_bytes(4, "big")
        return packet(0x32, body)

    async with front(server, "mqtt", limit, clock=clock) as running:
        client = await clients.dial(running)
        await client.send(connect("one", version=5))
        subscribe = packet(0x82, b"\0\1\0" + text("limited/#") + b"\0")
        await client.send(subscribe + message(1, 60) + message(2, 60) + message(3, 19))
        await running.until_waiting(2)
        heard: list[int] = []
        told: list[bytes] = []
        for messages in (3, 5):
            clock.ahead_ns += 10 * NS_PER_S
            await client.send(PINGREQ)
            while len(heard) + len(told) < messages:
                got = await client.receive()
                assert got is not None
                if got.kind == 3:
                    heard.append(int.from_bytes(got.body[-4:], "big"))
                elif got.kind == 4:
                    told.append(got.body[1:3])
        first, second = heard
        assert first > 50 >= second > 40
        assert sorted(told) == [b"\1", b"\2", b"\3\x97"]
        assert running.datapath.counters()["messages_expired"] == 1


@pytest.mark.parametrize("version", [4, 5])
async def test_a_message_of_qos_2_that_its_client_repeats_comes_once(
    server: Server, observer: Observer, clients: Clients, version: int
) -> None:
    """As gmqtt does with what is published while it connects; the repetition waits."""
    limit, none = message_limit("limited/#", rate=0.001, burst=1), b"\0" * (version == 5)
    async with front(server, "mqtt", limit) as running:
        client = await clients.dial(running)
        await client.send(connect("one", version=version))
        assert await client.receive() is not None
        await client.send(publish("limited/a", none + b"0", 2, 7) * 2)
        assert await client.receive() == (5, 0, b"\0\7")
        await client.send(packet(0x62, b"\0\7") + PINGREQ)
        while (got := await client.receive()) != (13, 0, b""):
            assert got == (7, 0, b"\0\7"), "MQTT 3.1.1: nothing of it waits"
        raised(running, 1000)
        await client.send(publish("limited/a", none + b"1", 2, 8))
        while (got := await client.receive()) != (7, 0, b"\0\x08"):
            assert got is not None
            if got.kind == 5:
                await client.send(packet(0x62, got.body[:2]))
        heard = await observer.until(2)
        assert [it.payload for it in heard] == [b"0", b"1"]


async def test_a_message_of_qos_2_that_has_passed_is_not_lost_when_its_repetition_is_dropped(
    server: Server, observer: Observer, clients: Clients
) -> None:
    """MQTT 3.1.1: the connection ends before the client reads PUBREC."""
    limit = message_limit("limited/#", rate=0.001, burst=1, excess=Excess.DROP)
    lasting = connect("one").replace(b"MQTT\4\2", b"MQTT\4\0")
    message = publish("limited/a", b"0", 2, 7)
    async with front(server, "mqtt", limit) as running:
        for session, flag in enumerate((0, 8)):
            client = await clients.dial(running)
            await client.send(lasting + bytes([message[0] | flag]) + message[1:])
            assert await client.receive() == (2, 0, bytes([session, 0]))
            assert await client.receive() == (5, 0, b"\0\7")
            if not flag:
                await client.vanish()
        await client.send(packet(0x62, b"\0\7"))
        assert await client.receive() == (7, 0, b"\0\7")
        heard = await observer.until(1)
        assert [it.payload for it in heard] == [b"0"]


async def test_other_topics_do_not_feel_a_flood_and_hold_bounds_it(
    server: Server, observer: Observer, clients: Clients
) -> None:
    limit = message_limit("limited/#", rate=100, burst=5)
    async with front(server, "mqtt", limit) as running:
        hold = 1 << 20
        running.broker.memory.hold = hold
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        floods = [await clients.open(running, f"flood{n}") for n in range(4)]
        block = publish("limited/a", b"0 ".ljust(100, b"x")) * 1000
        async with trio.open_nursery() as nursery:

            async def flood(client: RawClient) -> None:
                while True:
                    await client.stream.send_all(block)

            for client in floods:
                nursery.start_soon(flood, client)
            await until(lambda: running.broker.memory.held > hold // 2)
            other = await clients.open(running, "other")
            for number in range(200):
                await other.send(publish("free", b"%d" % number, 1, number + 1))
                await other.acknowledged([number + 1], 1)
                assert running.broker.memory.held < hold + 4 * (1 << 18)
            nursery.cancel_scope.cancel()
        await until(lambda: len(observer.numbers("free")) >= 200)
        assert observer.numbers("free") == [*range(200)]
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert (after - before) * 1024 < hold + (50 << 20)


async def test_large_messages_pass_though_others_take_all_of_hold(
    server: Server, observer: Observer, clients: Clients
) -> None:
    """Each is larger than the memory that is left, and they come at the same time."""
    limit, hold = message_limit("limited/#", rate=0.001, burst=1), 1 << 20
    async with front(server, "mqtt", limit, hold=hold, max_frame=hold) as running:
        flood = await clients.open(running, "flood")
        waiting = publish("limited/a", b"0 ".ljust(100_000, b"x"))
        await flood.send(waiting * 6)
        await running.until_waiting(5)
        large = [await clients.open(running, f"large{number}") for number in range(4)]
        with trio.fail_after(30):  # A frame that stands still ends its connection after 60 s.
            async with trio.open_nursery() as nursery:
                for number, client in enumerate(large):
                    message = publish("free", b"%d " % number + b"x" * 900_000, 1, 1)
                    nursery.start_soon(client.send, message)
                    nursery.start_soon(client.acknowledged, [1], 1)
        await observer.until(5)
        assert sorted(observer.numbers("free")) == [0, 1, 2, 3]
        assert running.broker.memory.held < hold


async def test_a_larger_hold_lets_a_frame_go_on_that_lacked_memory(
    server: Server, clients: Clients
) -> None:
    """The frame before it, which drld would complete first, does not come."""
    hold = 1 << 20
    async with front(server, "mqtt", hold=hold, max_frame=hold) as running:
        memory = running.broker.memory
        silent, other = [await clients.open(running, name) for name in ("silent", "other")]
        frame = publish("free", b"x" * 900_000, 1, 1)
        await other.send(frame[:400_000])
        await until(lambda: memory.held == 400_000)
        await silent.send(frame[:-1])
        await until(lambda: memory.held == 400_000 + len(frame) - 1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.send, frame[400_000:])
            await until(lambda: len(memory.stalled) == 1)
            spec = replace(running.broker.spec, hold=2 * hold)
            running.broker.change(spec, running.broker.stamps)
            await other.acknowledged([1], 1)


async def test_a_broker_that_stands_still_stops_its_clients_and_loses_nothing(
    server: Server, observer: Observer, clients: Clients
) -> None:
    async with front(server, "mqtt") as running:
        hold = 1 << 20
        running.broker.memory.hold = hold
        client = await clients.open(running, "one")
        server.freeze()
        sent = 0
        payload = b"x" * 1000
        # TCP's own buffers fill, and then the client cannot send on.
        assert isinstance(client.stream, trio.SocketStream)
        sock, rest = client.stream.socket, b""
        while writable(sock) or not running.broker.memory.held:
            if not rest:
                rest, sent = publish("free", b"%d " % sent + payload), sent + 1
            with trio.move_on_after(0.01):
                rest = rest[await sock.send(rest) :]
            assert running.broker.memory.held < hold
        server.thaw()
        await client.send(rest)
        await observer.until(sent)
        assert observer.numbers("free") == [*range(sent)]


async def test_a_broker_that_restarts_ends_its_clients_and_gets_the_next_ones(
    server: Server, clients: Clients
) -> None:
    limit = message_limit("limited/#", rate=1, burst=1)
    async with front(server, "mqtt", limit) as running:
        client = await clients.open(running, "one")
        await client.send(b"".join(publish("limited/a", b"%d" % n, 1, n + 1) for n in range(5)))
        await client.acknowledged([1], 1)
        await running.until_waiting(4)
        server.kill()
        assert (await client.receive()) is None, "it hears that its messages are not there"
        refused = await clients.dial(running)
        await refused.send(connect("two"))
        assert (await refused.receive()) is None
        await refused.vanish()
        assert running.broker.journal.counts["unreachable"] == 1
        server.start()
        again = await clients.open(running, "one")
        await again.send(publish("free", b"1", 1, 1))
        await again.acknowledged([1], 1)
        # They use no tokens that the next messages need.
        await until(lambda: running.broker.journal.counts["undelivered"] == 4)
        await until(lambda: running.datapath.waits(1).waiting == 0)
        await again.vanish()
        await client.vanish()
        await until(lambda: not running.broker.connections)
        assert running.broker.memory.held == 0


async def test_a_slow_subscriber_stops_its_own_messages_only(
    server: Server, clients: Clients
) -> None:
    async with front(server, "mqtt") as running:
        slow = await clients.open(running, "slow")
        quick = await clients.open(running, "quick")
        for client in (slow, quick):
            await client.send(b"\x82\x09\0\x01\0\x04free\0")
            assert (await client.receive()) == (9, 0, b"\0\x01\0")
        publisher = await clients.open(running, "publisher")
        payload = b"x" * 10_000
        for number in range(1000):
            await publisher.send(publish("free", b"%d " % number + payload))
            got = await quick.receive()
            assert got is not None
            assert got.body[6:].split()[0] == b"%d" % number
        assert running.broker.memory.held < 1 << 18
        for number in range(1000):
            got = await slow.receive()
            assert got is not None
            assert got.body[6:].split()[0] == b"%d" % number
