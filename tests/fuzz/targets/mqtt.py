"""MQTT: streams of clients and of brokers.

Frames are the same however a stream is cut, the broker understands what drld forwards of it, and
what drld says to the client stands between the broker's packets.
"""

from __future__ import annotations

from tests.fuzz.targets.base import Target
from tests.fuzz.targets.broker_frames import check_broker, check_client


def check(data: bytes) -> bool:
    if len(data) < 2:
        return False
    mark = b"\0\4%b"
    greeted = check_broker(
        "mqtt", data, lambda number: mark % number.to_bytes(4, "big"), packets, b"\xd0"
    )
    return check_client("mqtt", data) or greeted


def packets(data: bytes) -> list[bytes]:
    """Control packets, and last what is not whole."""
    found = []
    while len(data) > 1:
        length, width = 0, 0
        for width, byte in enumerate(data[1:5]):
            length += (byte % 128) * 128**width
            if byte < 128:
                break
        end = 2 + width + length
        if end > len(data):
            break
        found.append(data[:end])
        data = data[end:]
    return [*found, data]


def packet(first: int, *fields: bytes) -> bytes:
    """A control packet."""
    body = b"".join(fields)
    rest, length = divmod(len(body), 128)
    head = bytearray((first, length))
    while rest:
        head[-1] |= 128
        rest, length = divmod(rest, 128)
        head.append(length)
    return bytes(head) + body


def text(value: bytes) -> bytes:
    return len(value).to_bytes(2, "big") + value


def connect(version: int, flags: int = 2, *fields: bytes) -> bytes:
    """CONNECT, with what follows the client's identifier."""
    properties = b"\x05\x11\0\0\0\x0a" if version == 5 else b""
    head = text(b"MQTT") + bytes((version, flags)) + b"\0\x3c" + properties
    return packet(0x10, head, text(b"client"), *fields)


_PING = packet(0xC0)
_ALIAS = b"\x03\x23\0\1"
_MORE = b"\x13\x26\0\1k\0\1v\x23\0\1\x02\0\0\0\x09\x03\0\1t"


def seeds() -> list[bytes]:
    will = (b"\x02\x01\x01", text(b"will"), text(b"gone"), text(b"user"), text(b"secret"))
    older = [
        connect(4),
        packet(0x30, text(b"a/b"), b"payload"),
        packet(0x32, text(b"a"), b"\0\1x") + packet(0x3D, text(b"c"), b"\0\2"),
        packet(0x62, b"\0\2") + _PING + packet(0x40, b"\0\7") + packet(0x82, b"\0\3\0\1#\0"),
        packet(0xE0),
    ]
    newer = [
        connect(5, 0xC6, *will),
        packet(0x30, text(b"a/b"), _ALIAS, b"x"),
        packet(0x34, text(b""), b"\0\5", _ALIAS, b"y") + _PING,
        packet(0x32, text(b"c"), b"\0\6", _MORE, b"z"),
        packet(0x30, text(b""), _ALIAS) + packet(0xF0, b"\x18\0") + packet(0xE0, b"\4"),
    ]
    # Of MQTT 5: a will with a delay, a shared subscription, and an alias beyond the broker's.
    further = [
        connect(5, 0x06, b"\x09\x18\0\0\0\x3c\x02\0\0\0\x09", text(b"will"), text(b"gone")),
        packet(0x82, b"\0\x01\x02\x0b\x07", text(b"$share/g/a/#"), b"\x2d"),
        packet(0x32, text(b"a/b"), b"\0\2\x0c\x01\x01\x08\0\1r\x23\xff\xff\x0b\x7f", b"x"),
        packet(0x32, text(b""), b"\0\3\x03\x23\xff\xff", b"y"),
        packet(0xE0, b"\x04\x05\x11\0\0\0\x1e"),
    ]
    broker = [
        packet(0xF0, b"\x18\x06\x15\0\3abc"),
        packet(0x20, b"\0\0\x0a\x13\0\x0a\x22\0\x0a\x12\0\1c"),
        packet(0x90, b"\0\1\0\1") + packet(0xD0) + packet(0x40, b"\0\2\x10\0"),
        packet(0x32, text(b"a/b"), b"\0\7\x02\x0b\x07", bytes(200)) + packet(0xD0) + packet(0xD0),
        packet(0xE0, b"\x8b\0"),
    ]
    return [
        *(bytes((piece, drops)) + b"".join(further) for piece in (0, 1) for drops in (0, 2, 4)),
        *(bytes((piece,)) + b"".join(broker[begin:]) for piece in (0, 1, 7) for begin in (0, 1)),
        *(bytes((piece, 0b10)) + b"".join(older) for piece in (0, 1)),
        *(bytes((piece, drops)) + b"".join(newer) for piece in (0, 3) for drops in (0, 2, 10)),
        b"\5\0" + b"".join((*older[:-1], packet(0x34, text(b"t"), b"\0\2"), packet(0x62, b"\0\2"))),
    ]


WORDS = (
    *(connect(4), connect(5), _PING, _ALIAS, _MORE),
    *(packet(0x30, text(b"a"), b"x"), packet(0x34, text(b"a"), b"\0\1"), packet(0x62, b"\0\1")),
    *(
        b"\x03\x23\0\2",
        b"\0\0",
        b"\xff\xff\xff\x7f",
        b"\x80",
        b"MQTT",
        b"MQIsdp",
        b"GET / HTTP/1.1",
    ),
    *(b"\0\1+", b"\0\1#", b"\0\2\xc3\x28"),
)
TARGET = Target(check, seeds, words=WORDS, max_bytes=1500)
