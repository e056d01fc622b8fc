"""Protobuf's wire format for the few messages that the front knows, by tables of their fields.

The wire format is that of https://protobuf.dev/programming-guides/encoding. A field is a tag (its
number and a wire type), then a varint, or a length and as many bytes. Fields that a table does not
have, or has with another type, are skipped. Of a repeated singular field the last counts, and
messages merge.

Google's library does the same (it is the oracle of the tests). We do without it for two reasons:

- It costs the daemon 5 MB, and 3 more with what reflection needs.
- It refuses a message with a text that is not UTF-8. Envoy passes the bytes of its clients on, and
  lets a request pass whose message was refused, so a client could get around every limit. Here
  such bytes become lone surrogates, and the service decides about them.

Groups, which no message of proto3 has, are refused.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from drld.errors import InputError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
"""The wire types of protobuf that fields have here."""
_NUMBER, _TEXT, _RAW, _MESSAGE = range(4)
"""The encodings of a field's value."""
_MAX_VARINT_BITS = 64
_MAX_TAG = 2**32 - 1
_MAX_VARINT_BYTES = 10
_MAX_TAG_BYTES = 5
"""The most bytes of a tag or a length: they have 32 bits, and zeros before them count."""


class Scalar(enum.Enum):
    """The types of fields; the values are those of `FieldDescriptorProto.Type`."""

    INT64 = 3
    UINT64 = 4
    INT32 = 5
    BOOL = 8
    STRING = 9
    BYTES = 12
    UINT32 = 13


class Enumeration(NamedTuple):
    """An enumeration, with the message or file that contains it."""

    name: str
    values: Mapping[str, int]


class Field(NamedTuple):
    """A field of a message."""

    name: str
    number: int
    kind: Kind
    repeated: bool = False


class Message:
    """A message: decodes and encodes dictionaries by the names of its fields."""

    def __init__(
        self, name: str, *fields: Field, within: Sequence[Message | Enumeration] = ()
    ) -> None:
        """`within` are the types that are nested in it; they matter for their names alone."""
        self.name = name
        self.fields = fields
        self.within = within
        # Tables for what is done for each field of each call.
        self._by_tag: dict[int, tuple[str, int, Any, bool]] = {
            _tag(it): (it.name, _form(it), it.kind, it.repeated) for it in fields
        }
        self._by_name: dict[str, tuple[bytes, int, Any, bool]] = {
            it.name: (_varint(_tag(it)), _form(it), it.kind, it.repeated) for it in fields
        }

    def decode(self, data: bytes) -> dict[str, Any]:
        """Return the fields of a message.

        Raises:
            InputError: the bytes are no message.
        """
        found: dict[str, Any] = {}
        self._merge(found, data, 0, len(data))
        return found

    def _merge(self, found: dict[str, Any], data: bytes, at: int, end: int) -> None:
        fields = self._by_tag
        while at < end:
            # Nearly all tags and lengths have one byte.
            tag = data[at]
            if tag < 0x80:
                at += 1
            else:
                tag, at = _read(data, at, end, _MAX_TAG_BYTES)
            if not 8 <= tag <= _MAX_TAG:
                raise InputError("the message has a field without a sound number")
            wire_type = tag & 7
            start = at
            value: Any = 0
            if wire_type == _BYTES:
                if at < end and data[at] < 0x80:
                    size, start = data[at], at + 1
                else:
                    size, start = _read(data, at, end, _MAX_TAG_BYTES)
                at = start + size
            elif wire_type == _VARINT:
                value, at = _read(data, at, end)
            elif wire_type == _FIXED32:
                at += 4
            elif wire_type == _FIXED64:
                at += 8
            else:
                raise InputError("the message has a group")
            if at > end:
                raise InputError("the message is cut off")
            if (field := fields.get(tag)) is None:
                continue
            name, form, kind, repeated = field
            if form == _MESSAGE:
                value = {} if repeated else found.get(name, {})
                kind._merge(value, data, start, at)
            elif form == _TEXT:
                value = data[start:at].decode("utf-8", "surrogateescape")
            elif form == _RAW:
                value = data[start:at]
            else:
                value = _fitted(value, kind)
            if not repeated:
                found[name] = value
            elif name in found:
                found[name].append(value)
            else:
                found[name] = [value]

    def encode(self, values: Mapping[str, Any]) -> bytes:
        """Return the message with these fields.

        Zeros and empty texts are left out, as in proto3. A nested message may be encoded already.
        """
        parts: list[bytes] = []
        for name, value in values.items():
            tag, form, kind, repeated = self._by_name[name]
            if not value and (repeated or form != _MESSAGE):
                continue
            for each in value if repeated else (value,):
                if form == _NUMBER:
                    parts += (tag, _varint(each))
                    continue
                if form == _MESSAGE:
                    body = each if isinstance(each, bytes) else kind.encode(each)
                elif form == _TEXT:
                    body = each.encode("utf-8", "surrogateescape")
                else:
                    body = each
                parts += (tag, _varint(len(body)), body)
        return b"".join(parts)


Kind: TypeAlias = Scalar | Enumeration | Message


def _tag(field: Field) -> int:
    return field.number << 3 | (_VARINT if _form(field) == _NUMBER else _BYTES)


def _form(field: Field) -> int:
    if isinstance(field.kind, Message):
        return _MESSAGE
    if field.kind is Scalar.STRING:
        return _TEXT
    return _RAW if field.kind is Scalar.BYTES else _NUMBER


def _fitted(value: int, kind: Scalar | Enumeration) -> int:
    """Return a varint in the type of its field; higher bits are cut off."""
    if kind is Scalar.UINT64:
        return value
    if kind is Scalar.UINT32:
        return value & 0xFFFF_FFFF
    if kind is Scalar.BOOL:
        return int(value != 0)
    bits = 64 if kind is Scalar.INT64 else 32
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _read(data: bytes, at: int, end: int, most: int = _MAX_VARINT_BYTES) -> tuple[int, int]:
    """Return a varint of at most this many bytes, and the offset behind it.

    Raises:
        InputError: there is none.
    """
    if at < end and data[at] < 0x80:
        return data[at], at + 1
    value = 0
    for shift in range(0, 7 * most, 7):
        if at >= end:
            raise InputError("the message is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & ((1 << _MAX_VARINT_BITS) - 1), at
    raise InputError(f"the message has a number of more than {most} bytes")


_SMALL = [bytes([value]) for value in range(0x80)]


def _varint(value: int) -> bytes:
    if 0 <= value < 0x80:
        return _SMALL[value]
    value &= (1 << _MAX_VARINT_BITS) - 1
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
