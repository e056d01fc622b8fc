"""Random sessions through drld and straight at a real broker: all see the same messages.

Most messages of a session wait at one of two limits. Each session is made of a seed, and comes
twice, in other topics: once straight, once through drld. Then a subscriber at the broker has got
the same messages, and the client the same answers and messages.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from pathlib import Path
from random import Random

import trio

from testbed.messages.servers import Server, nats_server
from tests.brokers.front import Clients, front
from tests.brokers.raw_mqtt import DISCONNECT, PINGREQ, Packet, RawClient, connect, packet, text
from tests.local_daemons import ports
from tests.unit.messages.made import message_limit
from tests.unit.messages.test_front_strangers import RawNats

SESSIONS = 15
CUTS = (1, 2, 7, 100, 100_000)
SIZES = (0, 1, 20, 100, 127, 128, 16_384, 40_000)
"""Sizes of payloads, some at the bounds of MQTT's lengths, and one of more than one read."""
PLACES = (b"@0", b"@1")
"""What `@@` in a session is when it comes straight, and through drld."""


@dataclass
class Session:
    """Whole frames, and how the client ends."""

    connect: bytes
    frames: list[bytes]
    last: bytes = b""
    """The last frame; empty: the client vanishes."""


async def send(stream: trio.abc.SendStream, data: bytes, rng: Random) -> None:
    """Send it in pieces of random sizes."""
    while data:
        size = rng.choice(CUTS)
        await stream.send_all(data[:size])
        data = data[size:]


def mqtt_session(rng: Random) -> Session:
    """A session of MQTT 3.1.1 or 5.

    A broker publishes a message of QoS 2 when the client releases it. So a session with such
    messages has no subscriptions, which may come before or after that.
    """
    newer, subscribes = rng.random() < 0.6, rng.random() < 0.5

    def properties(*made: bytes) -> bytes:
        found = b"".join(it for it in made if rng.random() < 0.5)
        return bytes([len(found)]) + found if newer else b""

    def pair(key: str) -> bytes:
        return b"\x26" + text(key) + text("v")

    will = rng.random() < 0.5
    fields = text("MQTT") + bytes([4 + newer, 2 | will * rng.choice((0x04, 0x0C, 0x14, 0x2C))])
    fields += b"\0\0" + properties(b"\x21\0\1", b"\x19\1", pair("a")) + text("client@@")
    if will:
        fields += properties(b"\1\1", pair("b"), pair("a")) + text("limited/@@/w") + text("gone")
    aliases: dict[int, str] = {}

    def message(number: int) -> bytes:
        qos = rng.randrange(2 if subscribes else 3)
        topic, alias = rng.choice(("limited/@@/a", "limited/@@/ü", "free/@@")), b""
        if newer and rng.random() < 0.5:
            known = rng.randrange(1, 4)
            alias = b"\x23" + known.to_bytes(2, "big")
            if known in aliases and rng.random() < 0.7:
                topic = ""
            else:
                aliases[known] = topic
        behind = [pair(rng.choice("ab")) for _ in range(rng.randrange(3))] + [alias]
        front_of = properties(b"\1\1", b"\3" + text("text/plain"), b"\x08" + text("back"))
        if newer:
            found = front_of[1:] + b"".join(behind)
            front_of = bytes([len(found)]) + found
        middle = number.to_bytes(2, "big") if qos else b""
        payload = b"%d:%d " % (qos, number) + b"x" * rng.choice(SIZES)
        return packet(0x30 | qos << 1, text(topic) + middle + front_of + payload)

    def other(number: int) -> bytes:
        if not subscribes:
            return PINGREQ
        head = number.to_bytes(2, "big")
        topic = text(rng.choice(("limited/@@/a", "limited/@@/+", "free/@@")))
        if rng.random() < 0.3:
            return packet(0xA2, head + properties(pair("a")) + topic)
        options = bytes([newer and rng.choice((0, 4, 8, 0x20))])
        return packet(0x82, head + properties(b"\x0b\x85\1", pair("a")) + topic + options)

    numbers = range(1, rng.randrange(2, 40))
    frames = [message(it) if rng.random() < 0.8 else other(it) for it in numbers]
    bye = packet(0xE0, rng.choice((b"", b"\4", b"\0\5\x11\0\0\0\0"))) if newer else DISCONNECT
    return Session(packet(0x10, fields), frames, rng.choice((b"", bye)))


async def play_mqtt(session: Session, port: int, place: bytes, rng: Random) -> list[Packet]:
    """Everything that the client gets."""
    client = RawClient(await trio.open_tcp_stream("127.0.0.1", port))
    assert isinstance(client.stream, trio.SocketStream)
    await client.send(session.connect.replace(b"@@", place))
    left = sum(frame[0] >> 4 == 3 and frame[0] & 6 > 0 for frame in session.frames)
    got, acknowledged, sending = list[Packet](), trio.Event(), trio.Lock()

    async def hear() -> None:
        nonlocal left
        while (answer := await client.receive()) is not None:
            got.append(answer)
            if answer.kind == 5:
                async with sending:
                    await client.send(packet(0x62, answer.body[:2]))
            left -= answer.kind in (4, 7)
            if not left:
                acknowledged.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hear)
        for frame in session.frames:
            async with sending:
                await send(client.stream, frame.replace(b"@@", place), rng)
        await acknowledged.wait()
        await client.send(session.last)
        await client.stream.send_eof()
    await client.vanish()
    return got


class MqttObserver:
    """A subscriber at the broker."""

    async def begin(self, port: int) -> None:
        self.client = RawClient(await trio.open_tcp_stream("127.0.0.1", port))
        await self.client.send(connect("observer", version=5))
        for topic in ("limited/#", "free/#"):
            await self.client.send(packet(0x82, b"\0\1\0" + text(topic) + b"\x28"))

    async def heard(self) -> list[Packet]:
        """The messages since the last call."""
        await self.client.send(PINGREQ)
        found = []
        while (got := await self.client.receive()) is not None and got.kind != 13:
            found += [got] if got.kind == 3 else []
        return found


def of_qos_2(message: Packet) -> bool:
    """Whether the message was published with QoS 2."""
    return re.search(rb"2:\d+ x*$", message.body) is not None


async def test_sessions_of_mqtt(server: Server, clients: Clients) -> None:
    limits = [
        message_limit("limited/#", rate=400, burst=2),
        message_limit("+/+/a", id=2, rate=300, burst=1),
    ]
    observer = MqttObserver()
    await observer.begin(server.port)
    clients.opened.append(observer.client)
    await observer.heard()
    async with front(server, "mqtt", *limits) as running:
        for seed in range(SESSIONS):
            session, found = mqtt_session(Random(seed)), []
            for port, place in zip((server.port, running.port), PLACES, strict=True):
                got = await play_mqtt(session, port, place, Random(seed))
                # Messages of QoS 2 are published when they are released, beside the others.
                heard = sorted(await observer.heard(), key=of_qos_2)
                # Acknowledgements overtake messages that wait.
                found.append([
                    [(kind, flags, body.replace(place, b"@@")) for kind, flags, body in packets]
                    for packets in (heard, sorted(got))
                ])  # fmt: skip
            assert found[0] == found[1], f"session {seed}"
        assert running.waited() > SESSIONS


def nats_session(rng: Random) -> Session:
    """A session of NATS; no message comes to two of its own subscriptions."""

    def flag(name: str) -> bytes:
        return b'"%s":%s' % (name.encode(), rng.choice((b"true", b"false")))

    options = b",".join(flag(name) for name in ("verbose", "pedantic", "echo", "no_responders"))
    subjects = (b"limited.@@.a", "limited.@@.ü".encode(), b"free.@@", b"unread.@@")
    frames = [b"PING\r\n"]
    for number in range(rng.randrange(1, 40)):
        space, sid = rng.choice((b" ", b"  ", b"\t")), rng.randrange(3)
        head = rng.choice(subjects) + space + rng.choice((b"", b"back.@@ "))
        payload = b"%d " % number + b"x" * rng.choice(SIZES)
        fields = rng.choice((b"NATS/1.0\r\nA: 1\r\na: 2\r\n\r\n", b"NATS/1.0 503 Nobody\r\n\r\n"))
        sizes = b"%d %d\r\n" % (len(fields), len(fields) + len(payload))
        plain = rng.choice((b"PUB ", b"pub ")) + head + b"%d\r\n" % len(payload) + payload + b"\r\n"
        headed = b"HPUB" + space + head + sizes + fields + payload + b"\r\n"
        queue = rng.choice((b"", b"queue "))
        subscription = b"SUB " + (*subjects[:2], b"back.@@")[sid] + b" " + queue + b"%d\r\n" % sid
        end = b"UNSUB %d%s\r\n" % (sid, rng.choice((b"", b" 1", b" 3")))
        others = (subscription, end, b"PING\r\n" * rng.choice((1, 30)))
        frames.append(rng.choice(others) if rng.random() < 0.3 else rng.choice((plain, headed)))
    return Session(b'CONNECT {"headers":true,' + options + b"}\r\n", frames, b"PING\r\n")


async def play_nats(session: Session, port: int, place: bytes, rng: Random) -> list[bytes]:
    """The lines that the client gets."""
    client = RawNats(await trio.open_tcp_stream("127.0.0.1", port))
    data = b"".join((session.connect, *session.frames, session.last)).replace(b"@@", place)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send, client.stream, data, rng)
        said = await client.until(b"PONG\r\n", data.count(b"PING\r\n"))
    await client.stream.aclose()
    return lines(said, place)


def lines(said: bytes, place: bytes) -> list[bytes]:
    """The lines but for the server's INFO and PING, which may come at any time."""
    found = said.replace(place, b"@@").split(b"\r\n")
    return [line for line in found if not line.startswith((b"INFO", b"PING"))]


async def test_sessions_of_nats(tmp_path: Path) -> None:
    limits = [
        message_limit("limited.>", rate=400, burst=2, broker=("nats",)),
        message_limit("*.*.a", id=2, rate=300, burst=1, broker=("nats",)),
    ]
    (port,) = ports(1, socket.SOCK_STREAM)
    with nats_server(tmp_path, port) as server:
        async with front(server, "nats", *limits) as running:
            observer = RawNats(await trio.open_tcp_stream("127.0.0.1", port))
            subscriptions = b"SUB limited.> 1\r\nSUB free.> 2\r\n"
            await observer.stream.send_all(b'CONNECT {"verbose":false}\r\n' + subscriptions)
            await observer.stream.send_all(b"PING\r\n")
            await observer.until(b"PONG\r\n")
            for seed in range(SESSIONS):
                session, found = nats_session(Random(seed)), []
                for to, place in zip((port, running.port), PLACES, strict=True):
                    got = await play_nats(session, to, place, Random(seed))
                    observer.said = b""
                    await observer.stream.send_all(b"PING\r\n")
                    heard = await observer.until(b"PONG\r\n")
                    found.append((lines(heard, place), got))
                assert found[0] == found[1], f"session {seed}"
            assert running.waited() > SESSIONS
            await observer.stream.aclose()
