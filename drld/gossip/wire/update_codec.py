"""The codec of rate updates: 20 bytes of UDP payload (docs/wire-format.md).

An update is a body of 16 bytes. A datagram holds the bodies of one or several updates, of different
limits, to the same peer, and then a tag of 4 bytes (`drld.gossip.wire.datagram_tag`). The IPv4
packet of a single update is 48 bytes long, as in the paper (section 3.1).

`LAYOUT` is the format: encoder and decoder both walk it, and so do the tests. Integers are
big-endian, reals are IEEE 754 binary32.

Input from the network is hostile until checked: `decode_untrusted` returns `Update`s whose every
field is within its bounds, or raises `WireError`, and never anything else.
"""

from __future__ import annotations

import struct

from drld.errors import WireError
from drld.gossip.wire.layout import Table, Word
from drld.model import HEARTBEAT, Quantity, Update

VERSION = 1
UPDATE_KINDS = {"pushsum": 0, "mesh": 5, "tree": 6}
"""The kind of an update says of which fabric it is: by it goes what value, weight and epoch mean,
so what is of another one must not be taken in."""
LAST_KIND = 6
"""1 to 4 are control messages: `drld.gossip.wire.control_codec`."""

EPOCH_MODULUS = 16
MAX_VALUE = 2.0**53
"""Bytes/s, or flows; 72 Pbit/s is beyond any fleet."""
MAX_WEIGHT = 2.0**20
"""In units of the weight one limiter begins with: beyond the weight of any fleet."""


LAYOUT = Table(
    Word("B", (("version", 4), ("kind", 4))),
    Word("B", (("key_id", 2), ("quantity", 2), ("epoch", 4))),
    Word("H", (("limit_id", 16),)),
    Word("I", (("sequence", 32),)),
    Word("f", (("value", 32),)),
    Word("f", (("weight", 32),)),
)

_FLOAT = struct.Struct(">f")
_UPDATE_KINDS = frozenset(UPDATE_KINDS.values())
_QUANTITIES = {quantity.value: quantity for quantity in Quantity}

BODY_SIZE = LAYOUT.size
TAG_SIZE = 4
"""Bytes, unless the fleet has chosen another one of `TAG_SIZES`."""
TAG_SIZES = (4, 8, 16)
MAX_UPDATES = 72
"""In one datagram, so that its packet fits the smallest MTU of IPv6 (1280 bytes) with room for a
tunnel's header."""
MAX_DATAGRAM = MAX_UPDATES * BODY_SIZE + max(TAG_SIZES)
"""Bytes."""


def size(updates: int, tag_size: int = TAG_SIZE) -> int:
    """Length of a datagram with so many updates, bytes."""
    return updates * BODY_SIZE + tag_size


def head_untrusted(datagram: bytes) -> tuple[int, int]:
    """Kind and key id of a datagram, which stand at the same place in all.

    Raises:
        WireError: with the reason `length`, `version` or `kind`.
    """
    if not BODY_SIZE < len(datagram) <= MAX_DATAGRAM:
        raise WireError("length", f"{len(datagram)} bytes are no message")
    version = datagram[0] >> 4
    if version != VERSION:
        raise WireError("version", f"{version} instead of {VERSION}")
    kind = datagram[0] & 15
    if kind > LAST_KIND:
        raise WireError("kind", f"{kind} is unknown")
    return kind, datagram[1] >> 6


def to_float32(number: float) -> float:
    """The nearest number that the wire can carry; what a sender must subtract from its mass.

    Raises:
        OverflowError: the number is beyond float32.
    """
    rounded: float = _FLOAT.unpack(_FLOAT.pack(number))[0]
    return rounded


def encode(update: Update, key_id: int = 0, fabric: str = "pushsum") -> bytes:
    """The body of an update, value and weight rounded to float32.

    Raises:
        ValueError: a field is out of its bounds (a fault of the caller's).
    """
    problem = _out_of_bounds(update.limit_id, update.value, update.weight)
    if problem is not None:
        raise ValueError(f"{update}: {problem[1]}")
    try:
        return LAYOUT.pack(
            {
                "version": VERSION,
                "kind": UPDATE_KINDS[fabric],
                "key_id": key_id,
                "quantity": update.quantity.value,
                "epoch": update.epoch,
                "limit_id": update.limit_id,
                "sequence": update.sequence,
                "value": update.value,
                "weight": update.weight,
            }
        )
    except ValueError as error:
        raise ValueError(f"{update}: {error}") from None


def check_length_untrusted(datagram: bytes, tag_size: int = TAG_SIZE) -> None:
    """Whether there may be updates in a datagram.

    Raises:
        WireError: with the reason `length`.
    """
    bodies, rest = divmod(len(datagram) - tag_size, BODY_SIZE)
    if rest or not 0 < bodies <= MAX_UPDATES:
        raise WireError("length", f"{len(datagram)} bytes are no tag and 1 to {MAX_UPDATES} bodies")


def decode_untrusted(
    datagram: bytes, tag_size: int = TAG_SIZE, fabric: str = "pushsum"
) -> list[Update]:
    """The updates in a datagram; the tag itself is `drld.gossip.wire.datagram_tag`'s to check.

    Raises:
        WireError: with the reason `length`, `version`, `kind`, `fabric` (an update, but not of this
            one), `key` (not that of the first update), `quantity`, `limit`, `value` or `weight`,
            after the first field that is not as it must be. One bad update spoils the datagram.
    """
    check_length_untrusted(datagram, tag_size)
    key_id = datagram[1] >> 6
    kind = UPDATE_KINDS[fabric]
    bodies = LAYOUT.struct.iter_unpack(datagram[:-tag_size])
    return [_decode(words, key_id, kind) for words in bodies]


def _decode(words: tuple[int | float, ...], key_id: int, kind: int) -> Update:
    fields = LAYOUT.integers(words)
    value, weight = words[-2:]
    if fields["version"] != VERSION:
        raise WireError("version", f"{fields['version']} instead of {VERSION}")
    if fields["kind"] != kind:
        if fields["kind"] not in _UPDATE_KINDS:
            raise WireError("kind", f"{fields['kind']} is no update")
        raise WireError(
            "fabric", f"{fields['kind']} instead of {kind}: an update of another fabric"
        )
    if fields["key_id"] != key_id:
        raise WireError("key", f"{fields['key_id']} instead of the first update's {key_id}")
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
    # What is no number is within no bounds.
    if not abs(value) <= MAX_VALUE:
        return "value", f"{value} is not within {MAX_VALUE:g}"
    if not 0 <= weight <= MAX_WEIGHT:
        return "weight", f"{weight} is not from 0 to {MAX_WEIGHT:g}"
    return None
