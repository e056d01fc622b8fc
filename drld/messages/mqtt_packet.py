"""Pieces of MQTT 3.1.1 and 5 control packets (OASIS standards of 2014 and 2019)."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from drld.errors import FrameError
from drld.messages.frame import Client, kept

MQTT_3_1_1 = 4
MQTT_5 = 5
QUOTA_EXCEEDED = b"\x97"
"""The reason code for a message above its limit (MQTT 5, 2.4)."""
SHUTTING_DOWN = b"\xe0\x01\x8b"
"""DISCONNECT of MQTT 5 with the reason Server shutting down."""
EXPIRY, ASSIGNED_ID, SERVER_KEEP_ALIVE, TOPIC_ALIAS = 0x02, 0x12, 0x13, 0x23
AUTH_METHOD = 0x15
UNACCEPTABLE_VERSION = b"\x20\x02\0\x01"
"""CONNACK of MQTT 3.1.1; clients of any version understand its first byte behind the flags."""

_BYTE, _TWO, _FOUR, _VARINT, _BINARY, _PAIR = range(6)
_PROPERTIES = {
    **dict.fromkeys((0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A), _BYTE),
    **dict.fromkeys((0x13, 0x21, 0x22, 0x23), _TWO),
    **dict.fromkeys((0x02, 0x11, 0x18, 0x27), _FOUR),
    0x0B: _VARINT,
    **dict.fromkeys((0x03, 0x08, 0x09, 0x12, 0x15, 0x16, 0x1A, 0x1C, 0x1F), _BINARY),
    0x26: _PAIR,
}
"""The types of properties (MQTT 5, 2.2.2.2)."""
_WIDTHS = {_BYTE: 1, _TWO: 2, _FOUR: 4}


class Cursor:
    """Reads the fields of a control packet; its errors name the wrong field."""

    __slots__ = ("at", "data", "expiry_at", "packet")

    def __init__(self, packet: str, data: bytes, at: int) -> None:
        self.packet = packet
        self.data = data
        self.at = at
        self.expiry_at = 0
        """The offset of the message expiry interval that `properties` has passed; 0: none."""

    def wrong(self, field: str, claim: str) -> FrameError:
        """Make an error about a field."""
        return FrameError(f"{self.packet}.{field}: {claim}")

    def skip(self, field: str, size: int) -> int:
        """Pass this number of bytes, and return the offset at which they begin."""
        start = self.at
        self.at += size
        if self.at > len(self.data):
            left = len(self.data) - start
            raise self.wrong(field, f"must be within its packet (needs {size} bytes, {left} left)")
        return start

    def byte(self, field: str) -> int:
        """Read an integer of one byte."""
        return self.data[self.skip(field, 1)]

    def two(self, field: str) -> int:
        """Read an integer of two bytes."""
        start = self.skip(field, 2)
        return self.data[start] << 8 | self.data[start + 1]

    def varint(self, field: str) -> int:
        """Read a variable byte integer."""
        value = 0
        for shift in (0, 7, 14, 21):
            byte = self.byte(field)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise self.wrong(field, "must have at most 4 bytes (the fourth says that more follow)")

    def binary(self, field: str) -> bytes:
        """Read binary data that follows on its length."""
        size = self.two(field)
        start = self.skip(field, size)
        return self.data[start : self.at]

    def text(self, field: str) -> str:
        """Read a text in UTF-8."""
        return decoded(f"{self.packet}.{field}", self.binary(field))

    def properties(self, wanted: int = TOPIC_ALIAS, name: str = "topic_alias") -> int | None:
        """Pass the properties, and return the offset of the value of one; None: it is not there."""
        size = self.varint("properties")
        end = self.skip("properties", size) + size
        self.at = end - size
        found = None
        while self.at < end:
            kind = self.byte("properties")
            type_ = _PROPERTIES.get(kind)
            if type_ is None:
                raise self.wrong("properties", f"must be known to MQTT 5 (got {kind:#04x})")
            if kind == wanted:
                if found is not None:
                    raise self.wrong(name, "must be there at most once (got another)")
                found = self.at
            elif kind == EXPIRY:
                self.expiry_at = self.at
            if type_ == _VARINT:
                self.varint("properties")
            elif type_ in _WIDTHS:
                self.skip("properties", _WIDTHS[type_])
            else:
                for _ in range(2 if type_ == _PAIR else 1):
                    self.skip("properties", self.two("properties"))
        if self.at > end:
            raise self.wrong(
                "properties", f"must end where their length says ({self.at - end} over)"
            )
        return found


def decoded(field: str, raw: bytes) -> str:
    """Decode a text; `field` is its name for errors."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise FrameError(f"{field}: must be UTF-8 ({error.reason} at {error.start})") from None
    if "\0" in text:
        raise FrameError(f"{field}: must not contain U+0000")
    return text


def topic_of(raw: bytes) -> str:
    """Decode the topic of a PUBLISH.

    Raises:
        FrameError: it is no text, or has a wildcard.
    """
    text = decoded("PUBLISH.topic", raw)
    if "+" in text or "#" in text:
        raise FrameError(f"PUBLISH.topic: must not contain wildcards (got {text[:80]!r})")
    return text


def connect(data: bytes, at: int) -> Client:
    """Read a CONNECT packet, whose fields begin at `at`."""
    cursor = Cursor("CONNECT", data, at)
    name = cursor.binary("protocol_name")
    if name not in (b"MQTT", b"MQIsdp"):
        raise cursor.wrong("protocol_name", f"must be MQTT (got {name[:20]!r})")
    level = cursor.byte("protocol_version")
    version = level & 0x7F  # Bridges of mosquitto set the highest bit.
    if name != b"MQTT" or version not in (MQTT_3_1_1, MQTT_5):
        claim = f"must be 4 (MQTT 3.1.1) or 5 (MQTT 5) (got {level})"
        raise FrameError(f"CONNECT.protocol_version: {claim}", UNACCEPTABLE_VERSION)
    flags = cursor.byte("flags")
    if flags & 1 or flags & 0x18 == 0x18 or (flags & 0x38 and not flags & 4):
        raise cursor.wrong("flags", f"must be as the standard says (got {flags:#04x})")
    keep_alive_s = cursor.two("keep_alive")
    method = None
    if version == MQTT_5:
        method = cursor.properties(AUTH_METHOD, "authentication_method")
    id_ = cursor.text("client_id")
    if flags & 4:
        if version == MQTT_5:
            cursor.properties()
        cursor.text("will_topic")
        cursor.binary("will_payload")
    # The fields behind this place, and the flags that say which of them are there.
    words = bytes([flags & 0xC0]) + data[cursor.at :]
    user = cursor.text("user_name") if flags & 0x80 else None
    if flags & 0x40:
        cursor.binary("password")
    if cursor.at != len(data):
        raise cursor.wrong("payload", f"must end with its packet ({len(data) - cursor.at} left)")
    user = None if user is None else kept(user)
    credentials = blake2b(words, digest_size=16).digest() if method is None else None
    return Client(kept(id_), user, version, keep_alive_s, credentials)


class Connack(NamedTuple):
    """The broker's answer to a CONNECT."""

    accepted: bool
    """Whether the broker accepts the client."""
    keep_alive_s: int | None
    """The keep-alive that the broker sets in the place of the client's, s; None: it sets none."""
    assigned_id: str
    """The identifier that the broker gives a client without one, as `kept`; empty: none."""


def connack(data: bytes, at: int) -> Connack:
    """Read a CONNACK packet, whose fields begin at `at`."""
    cursor = Cursor("CONNACK", data, at)
    cursor.byte("flags")
    accepted = not cursor.byte("reason")
    if cursor.at == len(data):  # MQTT 3.1.1 has no properties.
        return Connack(accepted, None, "")
    keep_alive_s, assigned_id, begin = None, "", cursor.at
    if (found := cursor.properties(SERVER_KEEP_ALIVE, "server_keep_alive")) is not None:
        keep_alive_s = data[found] << 8 | data[found + 1]
    cursor.at = begin
    if (found := cursor.properties(ASSIGNED_ID, "assigned_id")) is not None:
        cursor.at = found
        assigned_id = kept(cursor.text("assigned_id"))
    return Connack(accepted, keep_alive_s, assigned_id)


def varint(value: int) -> bytes:
    """Write a variable byte integer."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def body(data: bytes) -> int:
    """The offset behind the length in a whole control packet."""
    at = 1
    while data[at] > 0x7F:
        at += 1
    return at + 1


def head_length(data: bytes | bytearray, start: int, size: int) -> tuple[int, int]:
    """The length in a packet's head, and the offset behind it; 0: not all of it is there."""
    value = 0
    for position in range(4):
        at = start + 1 + position
        if at >= size:
            return 0, 0
        value |= (data[at] & 0x7F) << 7 * position
        if data[at] < 0x80:
            return value, at + 1
    raise FrameError("packet.length: must have at most 4 bytes (the fourth says that more follow)")
