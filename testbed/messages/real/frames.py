"""The frames of publishers and subscribers for brokers: the least of MQTT 3.1.1 and of NATS.

It shares no code with drld, because what it counts judges drld.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from testbed.errors import MeasurementError

TOPIC = {"mqtt": "srtm/topic", "nats": "srtm.topic"}
SIZE = 150
"""Bytes of a message's payload, as in the authors' sources."""
_HEAD = struct.Struct(">IIQ")

Protocol = Literal["mqtt", "nats"]


class Message(NamedTuple):
    """The fields of a payload."""

    publisher: int
    number: int
    """Number among the publisher's messages, from 0."""
    scheduled_ns: int
    """Scheduled sending time, ns of the monotonic clock."""

    def payload(self) -> bytes:
        """Its bytes."""
        return _HEAD.pack(*self).ljust(SIZE, b".")


def _mqtt(kind: int, body: bytes) -> bytes:
    length, head = len(body), bytes([kind])
    while True:
        length, low = divmod(length, 128)
        head += bytes([low | (128 if length else 0)])
        if not length:
            return head + body


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def greeting(protocol: Protocol, name: str, *, keep_alive_s: int = 0, clean: bool = True) -> bytes:
    """The first bytes of a client, which the broker answers with `WELCOME`.

    With MQTT the client promises to be heard every `keep_alive_s` (0: not), and if it is not
    `clean`, the broker keeps its subscriptions and what they missed.
    """
    if protocol == "nats":
        return f'CONNECT {{"verbose":false,"name":"{name}"}}\r\nPING\r\n'.encode()
    flags = bytes([4, 2 * clean, 0, keep_alive_s])
    return _mqtt(0x10, _text("MQTT") + flags + _text(name))


WELCOME = {"mqtt": b"\x20\x02\x00\x00", "nats": b"PONG\r\n"}
"""The end of a broker's answer to a greeting."""


def subscription(protocol: Protocol, topic: str | None = None, qos: int = 0) -> bytes:
    """Bytes that ask for the messages of a topic, `TOPIC` by default, which the broker answers with
    `SUBSCRIBED` if `qos` is 0."""
    topic = topic or TOPIC[protocol]
    if protocol == "nats":
        return f"SUB {topic} 1\r\nPING\r\n".encode()
    return _mqtt(0x82, b"\x00\x01" + _text(topic) + bytes([qos]))


SUBSCRIBED = {"mqtt": b"\x90\x03\x00\x01\x00", "nats": b"PONG\r\n"}


def publication(protocol: Protocol, message: Message) -> bytes:
    """The bytes of a message that is not acknowledged."""
    return unconfirmed(protocol, TOPIC[protocol], message.payload())


def unconfirmed(protocol: Protocol, topic: str, payload: bytes) -> bytes:
    """The bytes of any payload on a topic, without a confirmation."""
    if protocol == "nats":
        return f"PUB {topic} {len(payload)}\r\n".encode() + payload + b"\r\n"
    return _mqtt(0x30, _text(topic) + payload)


def confirmed(
    protocol: Protocol, topic: str, message: Message, identifier: int, *, again: bool
) -> bytes:
    """The bytes of a message whose receipt the broker confirms: QoS 1 with MQTT, a PING with NATS.

    `identifier` is of MQTT's packet, and `again` says that it may have been sent before.
    """
    payload = message.payload()
    if protocol == "nats":
        return f"PUB {topic} {len(payload)}\r\n".encode() + payload + b"\r\nPING\r\n"
    return _mqtt(0x32 | again << 3, _text(topic) + struct.pack(">H", identifier) + payload)


def receipt(identifier: int) -> bytes:
    """PUBACK of MQTT."""
    return _mqtt(0x40, struct.pack(">H", identifier))


class Delivery(NamedTuple):
    """A frame of a broker that is of interest to a client."""

    message: Message | None
    """The payload for a subscriber; None: the frame confirms a publisher's message."""
    identifier: int
    """Identifier of MQTT's packet; 0: it has none."""
    again: bool
    """Whether the broker says that it may have delivered it before."""


def delivery(protocol: Protocol, frame: bytes) -> Delivery | None:
    """The meaning of a whole frame; None: it is another one."""
    if protocol == "nats":
        if frame == b"PONG\r\n":
            return Delivery(None, 0, False)
        if not frame.startswith(b"MSG "):
            return None
        return Delivery(Message(*_HEAD.unpack_from(frame, len(frame) - SIZE - 2)), 0, False)
    if frame[0] == 0x40:
        return Delivery(None, int.from_bytes(frame[2:4], "big"), False)
    if frame[0] >> 4 != 3:
        return None
    start = len(frame) - SIZE
    identifier = int.from_bytes(frame[start - 2 : start], "big") if frame[0] & 6 else 0
    return Delivery(Message(*_HEAD.unpack_from(frame, start)), identifier, bool(frame[0] & 8))


@dataclass(slots=True)
class Frames:
    """Takes the frames out of what a broker sends."""

    protocol: Protocol
    _unread: bytes = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take in some bytes; return the frames that are whole."""
        self._unread += data
        at = 0
        while (size := self._size(at)) is not None:
            yield self._unread[at : at + size]
            at += size
        self._unread = self._unread[at:]

    def _size(self, at: int) -> int | None:
        """Length of the whole frame at a place; None: it is not all there."""
        data, start = self._unread, at
        if self.protocol == "nats":
            end = data.find(b"\r\n", start)
            if end < 0:
                return None
            line = data[start:end]
            payload = int(line.split()[-1]) + 2 if line.startswith(b"MSG ") else 0
            size = end + 2 - start + payload
        else:
            length, place = 0, 1
            while True:
                if start + place >= len(data):
                    return None
                length |= (data[start + place] & 127) << 7 * (place - 1)
                place += 1
                if data[start + place - 1] < 128:
                    break
            size = place + length
        return size if start + size <= len(data) else None


@dataclass(slots=True)
class Deliveries:
    """Takes the messages out of what a broker sends to a subscriber."""

    protocol: Protocol
    _frames: Frames = field(init=False)

    def __post_init__(self) -> None:
        self._frames = Frames(self.protocol)

    def feed(self, data: bytes) -> Iterator[Message]:
        """Take in some bytes.

        Raises:
            MeasurementError: they are no delivery.
        """
        for frame in self._frames.feed(data):
            found = delivery(self.protocol, frame)
            if found is not None and found.message is not None:
                yield found.message
            elif not frame.startswith(b"PING\r\n"):
                raise MeasurementError(f"a subscriber received {frame[:80]!r}")
