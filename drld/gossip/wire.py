"""The codec of rate updates: 20 bytes of UDP payload (docs/wire-format.md).

An update is a body of 16 bytes, and a datagram is a tag of 4 bytes (`drld.gossip.auth`) after the
bodies of one update or of several, of different limits, to the same peer. Where there is one its
IPv4 packet is 48 bytes long, as in the paper (section 3.1).

`LAYOUT` is the format: encoder and decoder both walk it, and so do the tests. Integers are
big-endian, reals are IEEE 754 binary32.

What comes off the wire is hostile until shown otherwise: `decode_untrusted` returns `Update`s whose
every field is within its bounds, or raises `WireError`, and never anything else.
"""

from __future__ import annotations

import math
import struct
from typing import NamedTuple

from drld.errors import WireError
from drld.model import HEARTBEAT, Quantity, Update

VERSION = 1
KIND_UPDATE = 0
KEY_ID = 0
"""The only key there is so far."""

EPOCH_MODULUS = 16
MAX_VALUE = 2.0**53
"""Bytes/s, or flows; 72 Pbit/s is beyond any fleet."""
MAX_WEIGHT = 2.0**20
"""In units of the weight one limiter begins with: beyond the weight of any fleet."""


class Word(NamedTuple):
    """Bytes that are read at once, and the fields they hold, high bits first."""

    code: str
    """Of the `struct` module; `f` holds a single real."""
    fields: tuple[tuple[str, int], ...]
    """(name, bits) of each."""


LAYOUT: tuple[Word, ...] = (
    Word("B", (("version", 4), ("kind", 4))),
    Word("B", (("key_id", 2), ("quantity", 2), ("epoch", 4))),
    Word("H", (("limit_id", 16),)),
    Word("I", (("sequence", 32),)),
    Word("f", (("value", 32),)),
    Word("f", (("weight", 32),)),
)

_BODY = struct.Struct(">" + "".join(word.code for word in LAYOUT))
_FLOAT = struct.Struct(">f")
_QUANTITIES = {quantity.value: quantity for quantity in Quantity}

BODY_SIZE = _BODY.size
TAG_SIZE = 4
MAX_UPDATES = 72
"""In one datagram, so that its packet fits the smallest MTU of IPv6 (1280 bytes) with room for a
tunnel's header."""


def size(updates: int) -> int:
    """Length of a datagram with so many updates, bytes."""
    return updates * BODY_SIZE + TAG_SIZE


def to_float32(number: float) -> float:
    """The nearest number that the wire can carry; what a sender must subtract from its mass.

    Raises:
        OverflowError: the number is beyond float32.
    """
    rounded: float = _FLOAT.unpack(_FLOAT.pack(number))[0]
    return rounded


def encode(update: Update) -> bytes:
    """The body of an update, value and weight rounded to float32.

    Raises:
        ValueError: a field is out of its bounds (a fault of the caller's).
    """
    fields: dict[str, int | float] = {
        "version": VERSION,
        "kind": KIND_UPDATE,
        "key_id": KEY_ID,
        "quantity": update.quantity.value,
        "epoch": update.epoch,
        "limit_id": update.limit_id,
        "sequence": update.sequence,
        "value": update.value,
        "weight": update.weight,
    }
    problem = _out_of_bounds(update.limit_id, update.value, update.weight)
    if problem is not None:
        raise ValueError(f"{update}: {problem[1]}")
    words: list[int | float] = []
    for code, layout in LAYOUT:
        if code == "f":
            words.append(fields[layout[0][0]])
            continue
        word = 0
        for name, bits in layout:
            field = fields[name]
            if not isinstance(field, int) or not 0 <= field < 1 << bits:
                raise ValueError(f"{update}: {name} does not fit {bits} bits")
            word = word << bits | field
        words.append(word)
    return _BODY.pack(*words)


def decode_untrusted(datagram: bytes) -> list[Update]:
    """The updates in a datagram; the tag itself is `drld.gossip.auth`'s to check.

    Raises:
        WireError: with the reason `length`, `version`, `kind`, `key`, `quantity`, `limit`, `value`
            or `weight`, after the first field that is not as it must be. One bad update spoils the
            datagram.
    """
    bodies, rest = divmod(len(datagram) - TAG_SIZE, BODY_SIZE)
    if rest or not 0 < bodies <= MAX_UPDATES:
        raise WireError("length", f"{len(datagram)} bytes are no tag and 1 to {MAX_UPDATES} bodies")
    return [_decode(words) for words in _BODY.iter_unpack(datagram[:-TAG_SIZE])]


def _decode(words: tuple[int | float, ...]) -> Update:
    fields: dict[str, int] = {}
    reals: list[float] = []
    for (_, layout), word in zip(LAYOUT, words, strict=True):
        if isinstance(word, float):
            reals.append(word)
            continue
        shift = 0
        for name, bits in reversed(layout):
            fields[name] = word >> shift & ((1 << bits) - 1)
            shift += bits
    value, weight = reals
    if fields["version"] != VERSION:
        raise WireError("version", f"{fields['version']} instead of {VERSION}")
    if fields["kind"] != KIND_UPDATE:
        raise WireError("kind", f"{fields['kind']} is unknown")
    if fields["key_id"] != KEY_ID:
        raise WireError("key", f"{fields['key_id']} is unknown")
    quantity = _QUANTITIES.get(fields["quantity"])
    if quantity is None:
        raise WireError("quantity", f"{fields['quantity']} is unknown")
    problem = _out_of_bounds(fields["limit_id"], value, weight)
    if problem is not None:
        raise WireError(*problem)
    return Update(
        limit_id=fields["limit_id"],
        sequence=fields["sequence"],
        quantity=quantity,
        epoch=fields["epoch"],
        value=value,
        weight=weight,
    )


def _out_of_bounds(limit_id: int, value: float, weight: float) -> tuple[str, str] | None:
    """The first bound that does not hold: (reason, detail)."""
    if limit_id == HEARTBEAT and value != 0:
        return "limit", f"{HEARTBEAT} is of no limit, and has no value"
    if not (math.isfinite(value) and abs(value) <= MAX_VALUE):
        return "value", f"{value} is not within {MAX_VALUE:g}"
    if not (math.isfinite(weight) and 0 <= weight <= MAX_WEIGHT):
        return "weight", f"{weight} is not from 0 to {MAX_WEIGHT:g}"
    return None
