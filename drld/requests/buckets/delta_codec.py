"""Deltas on the wire: one datagram has entries of one limit's keys, in the form of its buckets.

After the header of a numbered message (`drld.gossip.wire.message`), whose third and fourth byte
have the digest of the limit's settings:

    limit 2 | form 1 | acknowledgements 1 | keys 2
    acknowledgements: number 4 each
    a key: 8, and then
      counter: entries 2 | limit 8, signed | refilled 8 | entries of origin 4, count 8
      queue:   entries 2 | entries of millisecond 6, number in it 2, life 8
      ledger:  own cells 2 | others 2 | own: slot 2, count 4, age 4 | others: origin 4 and the same

An own cell is one of the sender's, which the receiver knows by its session. A message that does not
fit a datagram is several, as entries are merged one by one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, ClassVar

from drld.errors import WireError
from drld.gossip.wire.message import HEADER, MAX_CONTENT, NumberedCodec, number_of
from drld.requests.buckets.counter import CounterDelta
from drld.requests.buckets.ledger_cell import Cell
from drld.requests.buckets.queue import Element
from drld.requests.buckets.replica import Message

KIND = 8
"""The kind of these messages on the requests' socket."""
_DIGEST = struct.Struct(">H")
_HEAD = struct.Struct(">HBBH")
_KEY = struct.Struct(">Q")
_COUNT = struct.Struct(">H")
_COUNTER = struct.Struct(">HqQ")
_COUNTED = struct.Struct(">IQ")
_ELEMENT = struct.Struct(">IHHQ")
_CELLS = struct.Struct(">HH")
_OWN = struct.Struct(">HII")
_OTHER = struct.Struct(">IHII")
_MOST_ACKNOWLEDGED = 63
"""The most acknowledgements of a datagram; the others follow in the next."""
_ROOM = MAX_CONTENT - HEADER.size - _HEAD.size
_MOST = 2**64 - 1
_OWN_ORIGIN = -1
"""Stands for the sender as the origin of a cell, in a decoded part."""


class Form(IntEnum):
    """The kind of a limit's buckets."""

    COUNTER = 0
    QUEUE = 1
    LEDGER = 2


@dataclass(frozen=True, slots=True)
class Part:
    """The content of one datagram."""

    limit_id: int
    form: Form
    received: tuple[int, ...]
    deltas: tuple[tuple[int, Any], ...]
    """The hash of each key, and the sender's delta of it."""
    digest: int = 0
    """The digest of the settings in which sender and receiver must agree, 0 to 65535."""
    number: int = field(default=0, compare=False)
    """The number of the datagram in which the part came; a sender does not set it."""


class DeltaCodec(NumberedCodec[Part]):
    """Writes and reads parts."""

    WIDEST: ClassVar[int] = _KEY.size + _COUNTER.size + _COUNTED.size
    """The least room for another key, bytes."""

    def encode(self, body: Part, key_id: int, number: int) -> bytes:
        """See `Codec.encode`."""
        try:
            digest = _DIGEST.pack(body.digest)
        except struct.error as error:
            raise ValueError(f"the digest does not fit: {error}") from None
        content = super().encode(body, key_id, number)
        return content[:2] + digest + content[4:]

    def decode_untrusted(self, content: bytes) -> Part:
        """See `Codec.decode_untrusted`."""
        self.check_length_untrusted(len(content))
        (digest,) = _DIGEST.unpack_from(content, 2)
        part = super().decode_untrusted(content[:2] + bytes(2) + content[4:])
        return replace(part, digest=digest, number=number_of(content))

    def check_length_untrusted(self, length: int) -> None:
        """See `Codec.check_length_untrusted`."""
        if not HEADER.size + _HEAD.size <= length <= MAX_CONTENT:
            raise WireError("length", f"{length} bytes are no delta")

    def pack(self, body: Part) -> bytes:
        """See `NumberedCodec.pack`."""
        try:
            data = [_HEAD.pack(body.limit_id, body.form, len(body.received), len(body.deltas))]
            data += [struct.pack(">I", number) for number in body.received]
            for key, delta in body.deltas:
                data += [_KEY.pack(key), _pack(body.form, delta)]
        except struct.error as error:
            raise ValueError(f"the delta does not fit its format: {error}") from None
        return b"".join(data)

    def unpack_untrusted(self, data: bytes) -> Part:
        """See `NumberedCodec.unpack_untrusted`."""
        try:
            limit_id, form, acknowledgements, keys = _HEAD.unpack_from(data)
            if form not in set(Form):
                raise WireError("value", f"form {form} is unknown")
            offset = _HEAD.size
            received = struct.unpack_from(f">{acknowledgements}I", data, offset)
            offset += 4 * acknowledgements
            deltas = []
            for _ in range(keys):
                (key,) = _KEY.unpack_from(data, offset)
                delta, offset = _unpack_untrusted(Form(form), data, offset + _KEY.size)
                deltas.append((key, delta))
        except struct.error:
            raise WireError("length", "the delta ends early") from None
        if offset != len(data):
            raise WireError("length", f"{len(data) - offset} bytes follow the delta")
        return Part(limit_id, Form(form), received, tuple(deltas))


def _pack(form: Form, delta: Any) -> bytes:
    if form is Form.COUNTER:
        head = _COUNTER.pack(len(delta.counts), delta.limit, delta.refilled_ns)
        return head + b"".join(_COUNTED.pack(*entry) for entry in delta.counts)
    if form is Form.QUEUE:
        return _COUNT.pack(len(delta)) + b"".join(
            _ELEMENT.pack(birth[0] >> 16, birth[0] & 0xFFFF, birth[1], life)
            for birth, life in delta
        )
    own = [cell for cell in delta if cell.origin == _OWN_ORIGIN]
    others = [cell for cell in delta if cell.origin != _OWN_ORIGIN]
    return b"".join((
        _CELLS.pack(len(own), len(others)),
        *(_OWN.pack(*cell[1:]) for cell in own), *(_OTHER.pack(*cell) for cell in others),
    ))  # fmt: skip


def _unpack_untrusted(form: Form, data: bytes, offset: int) -> tuple[Any, int]:
    """Return a key's delta, and the offset behind it."""
    delta: Any
    if form is Form.COUNTER:
        entries, limit, refilled_ns = _COUNTER.unpack_from(data, offset)
        rows, offset = _rows(_COUNTED, entries, data, offset + _COUNTER.size)
        delta = CounterDelta(tuple((row[0], row[1]) for row in rows), limit, refilled_ns)
        counts = [count for _, count in rows]
    elif form is Form.QUEUE:
        (entries,) = _COUNT.unpack_from(data, offset)
        rows, offset = _rows(_ELEMENT, entries, data, offset + _COUNT.size)
        delta = tuple(Element((high << 16 | low, n), life) for high, low, n, life in rows)
        counts = [life for _, life in delta]
    else:
        own, others = _CELLS.unpack_from(data, offset)
        rows, offset = _rows(_OWN, own, data, offset + _CELLS.size)
        cells = [Cell(_OWN_ORIGIN, *row) for row in rows]
        rows, offset = _rows(_OTHER, others, data, offset)
        delta = (*cells, *(Cell(*row) for row in rows))
        counts = [cell.tokens for cell in delta]
    if not all(counts):
        raise WireError("value", "an entry of nothing")
    if form is not Form.COUNTER and not delta:
        raise WireError("value", "a key without entries")
    return delta, offset


def _rows(
    table: struct.Struct, count: int, data: bytes, offset: int
) -> tuple[list[tuple[int, ...]], int]:
    end = offset + count * table.size
    if end > len(data):
        raise WireError("length", "the delta ends early")
    return list(table.iter_unpack(data[offset:end])), end


def parts(message: Message, form: Form, limit_id: int, origin: int) -> Iterator[Part]:
    """Return a message as the parts of as many datagrams as it takes; `origin` is the sender's."""
    received, others = _some(message.received)
    room = _ROOM - 4 * len(received)
    deltas: list[tuple[int, Any]] = []
    for key, whole in message.deltas.items():
        rest = _as_sent(form, whole, origin)
        while rest is not None:
            if room < DeltaCodec.WIDEST:
                yield Part(limit_id, form, received, tuple(deltas))
                received, others = _some(others)
                room, deltas = _ROOM - 4 * len(received), []
            now, rest, size = _split(form, rest, room)
            deltas.append((key, now))
            # A receiver takes a key once of a datagram: the rest goes into the next.
            room = room - size if rest is None else 0
    while deltas or received:
        yield Part(limit_id, form, received, tuple(deltas))
        deltas = []
        received, others = _some(others)


def _some(received: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the acknowledgements of a datagram, and the others."""
    return received[:_MOST_ACKNOWLEDGED], received[_MOST_ACKNOWLEDGED:]


def of_sender(part: Part, origin: int) -> tuple[tuple[int, Any], ...]:
    """Return the deltas of a decoded part, with the sender's origin in its own cells."""
    if part.form is not Form.LEDGER:
        return part.deltas
    return tuple(
        (key, tuple(
            cell._replace(origin=origin) if cell.origin == _OWN_ORIGIN else cell for cell in delta
        ))
        for key, delta in part.deltas
    )  # fmt: skip


def _as_sent(form: Form, delta: Any, origin: int) -> Any:
    """Return a delta with the sender's own cells marked.

    A number that a lying peer has made too large is written as the largest number there is. The
    ledger bounds its cells itself.
    """
    if form is Form.QUEUE:
        return tuple(Element(birth, min(life, _MOST)) for birth, life in delta)
    if form is Form.COUNTER:
        counts = tuple((origin, min(count, _MOST)) for origin, count in delta.counts)
        limit = max(min(delta.limit, _MOST >> 1), -(_MOST >> 1))
        return CounterDelta(counts, limit, min(delta.refilled_ns, _MOST))
    return tuple(c._replace(origin=_OWN_ORIGIN) if c.origin == origin else c for c in delta)


def _split(form: Form, delta: Any, room: int) -> tuple[Any, Any, int]:
    """Return the part of a key's delta that fits into the room, the rest or None, and the bytes of
    the first."""
    entries: Sequence[Any] = delta.counts if form is Form.COUNTER else delta
    head, widest = {
        Form.COUNTER: (_COUNTER.size, _COUNTED.size),
        Form.QUEUE: (_COUNT.size, _ELEMENT.size),
        Form.LEDGER: (_CELLS.size, _OTHER.size),
    }[form]
    head += _KEY.size
    count = (room - head) // widest
    now, rest = entries[:count], entries[count:]
    narrow = 0
    if form is Form.LEDGER:
        now = tuple(sorted(now, key=lambda cell: cell.origin != _OWN_ORIGIN))
        narrow = sum(cell.origin == _OWN_ORIGIN for cell in now)
    size = head + len(now) * widest - narrow * (_OTHER.size - _OWN.size)
    if form is Form.COUNTER:
        return delta._replace(counts=now), delta._replace(counts=rest) if rest else None, size
    return now, rest or None, size
