"""A client of MQTT 3.1.1 that sends exactly the bytes that a test wants, when it wants."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

import trio

PATIENCE_S = 120.0


class Packet(NamedTuple):
    """A control packet."""

    kind: int
    flags: int
    body: bytes


def packet(first: int, body: bytes) -> bytes:
    """A control packet as it is sent."""
    length, rest = b"", len(body)
    while True:
        rest, digit = rest >> 7, rest & 0x7F
        length += bytes([digit | 0x80 * (rest > 0)])
        if not rest:
            return bytes([first]) + length + body


def text(value: str) -> bytes:
    raw = value.encode()
    return len(raw).to_bytes(2, "big") + raw


def connect(
    client_id: str, *, keep_alive_s: int = 0, will: str | None = None, version: int = 4
) -> bytes:
    """CONNECT, with a will to a topic of that name if there is one."""
    flags = 2 | (0x04 if will else 0)
    none = b"\0" if version == 5 else b""
    body = text("MQTT") + bytes([version, flags]) + keep_alive_s.to_bytes(2, "big") + none
    return packet(
        0x10, body + text(client_id) + (none + text(will) + text("gone") if will else b"")
    )


def publish(topic: str, payload: bytes, qos: int = 0, identifier: int = 0) -> bytes:
    """PUBLISH."""
    middle = identifier.to_bytes(2, "big") if qos else b""
    return packet(0x30 | qos << 1, text(topic) + middle + payload)


DISCONNECT = packet(0xE0, b"")
PINGREQ = packet(0xC0, b"")


class RawClient:
    """One connection."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._rest = b""

    async def send(self, data: bytes) -> None:
        with trio.fail_after(PATIENCE_S):
            await self.stream.send_all(data)

    async def receive(self) -> Packet | None:
        """The next packet; None: the connection has ended."""
        with trio.fail_after(PATIENCE_S):
            while not (found := list(self._whole())):
                data = await self.stream.receive_some(65_536)
                if not data:
                    return None
                self._rest += data
        return found[0]

    def _whole(self) -> Iterator[Packet]:
        """Take a packet out of what has come, if all of it is there."""
        length, at = 0, 1
        for shift in (0, 7, 14, 21):
            if at >= len(self._rest):
                return
            digit = self._rest[at]
            length |= (digit & 0x7F) << shift
            at += 1
            if digit < 0x80:
                break
        if len(self._rest) < at + length:
            return
        first, body = self._rest[0], self._rest[at : at + length]
        self._rest = self._rest[at + length :]
        yield Packet(first >> 4, first & 15, body)

    async def acknowledged(self, identifiers: list[int], qos: int) -> None:
        """Wait for the acknowledgements of messages, and answer them."""
        left = [*identifiers]
        while left:
            got = await self.receive()
            assert got is not None
            identifier = int.from_bytes(got.body[:2], "big")
            if got.kind == 5:
                await self.send(packet(0x62, got.body[:2]))
            else:
                assert got.kind == (4 if qos == 1 else 7), got
                left.remove(identifier)

    async def vanish(self) -> None:
        """End the connection as a process that is killed does: without DISCONNECT."""
        await self.stream.aclose()

    async def reset(self) -> None:
        """End the connection as a host that does not know it any more does: by RST."""
        assert isinstance(self.stream, trio.SocketStream)
        self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self.stream.aclose()
