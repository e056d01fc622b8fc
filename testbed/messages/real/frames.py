"""What publishers and subscribers say to brokers: the least of MQTT 3.1.1 and of NATS.

It shares no code with drld, because what it counts judges drld.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from testbed.errors import MeasurementError

TOPIC = {"mqtt": "srtm/topic", "nats": "srtm.topic"}
SIZE = 150
"""Bytes of a message's payload, as in the authors' sources."""
_HEAD = struct.Struct(">IIQ")

Protocol = Literal["mqtt", "nats"]


class Message(NamedTuple):
    """What a payload says."""

    publisher: int
    number: int
    """Of the publisher's messages, from 0."""
    scheduled_ns: int
    """When it was to be sent, ns of the monotonic clock."""

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


def greeting(protocol: Protocol, name: str) -> bytes:
    """The first bytes of a client, which the broker answers with `WELCOME`."""
    if protocol == "nats":
        return f'CONNECT {{"verbose":false,"name":"{name}"}}\r\nPING\r\n'.encode()
    # A clean session, and no keep-alive.
    return _mqtt(0x10, _text("MQTT") + bytes([4, 2, 0, 0]) + _text(name))


WELCOME = {"mqtt": b"\x20\x02\x00\x00", "nats": b"PONG\r\n"}
"""How the broker's answer to a greeting ends."""


def subscription(protocol: Protocol) -> bytes:
    """Bytes that ask for all messages, which the broker answers with `SUBSCRIBED`."""
    topic = TOPIC[protocol]
    if protocol == "nats":
        return f"SUB {topic} 1\r\nPING\r\n".encode()
    return _mqtt(0x82, b"\x00\x01" + _text(topic) + b"\x00")


SUBSCRIBED = {"mqtt": b"\x90\x03\x00\x01\x00", "nats": b"PONG\r\n"}


def publication(protocol: Protocol, message: Message) -> bytes:
    """The bytes of a message that is not acknowledged."""
    topic, payload = TOPIC[protocol], message.payload()
    if protocol == "nats":
        return f"PUB {topic} {len(payload)}\r\n".encode() + payload + b"\r\n"
    return _mqtt(0x30, _text(topic) + payload)


@dataclass(slots=True)
class Deliveries:
    """Takes the messages out of what a broker sends to a subscriber."""

    protocol: Protocol
    _unread: bytes = b""

    def feed(self, data: bytes) -> Iterator[Message]:
        """Take in some bytes.

        Raises:
            MeasurementError: they are no delivery.
        """
        self._unread += data
        at = 0
        while (size := self._size(at)) is not None:
            body = self._unread[at : at + size]
            at += size
            if body.startswith(b"PING\r\n"):
                continue
            start = size - SIZE - (2 if self.protocol == "nats" else 0)
            if start < 0:
                raise MeasurementError(f"a subscriber received {body[:80]!r}")
            yield Message(*_HEAD.unpack_from(body, start))
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
