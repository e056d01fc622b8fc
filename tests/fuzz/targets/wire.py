"""Updates off the wire: valid ones, or a `WireError` with a known reason."""

from __future__ import annotations

import math

from drld.gossip.wire.update_codec import (
    MAX_UPDATES,
    MAX_VALUE,
    MAX_WEIGHT,
    TAG_SIZES,
    decode_untrusted,
    encode,
    size,
)
from drld.model import Quantity, Update
from tests.fuzz.targets.base import Target, unless_refused

REASONS = {"length", "version", "kind", "fabric", "key", "quantity", "limit", "value", "weight"}


def check(datagram: bytes) -> bool:
    """Whatever the length of the tag is."""
    accepted = [check_updates(datagram, tag_size) for tag_size in TAG_SIZES]
    return True in accepted


def check_updates(datagram: bytes, tag_size: int) -> bool:
    """Decode; what is accepted is within bounds, and exactly what its encoding says."""
    updates = unless_refused(lambda: decode_untrusted(datagram, tag_size), REASONS)
    if updates is None:
        return False
    assert len(datagram) == size(len(updates), tag_size)
    assert 1 <= len(updates) <= MAX_UPDATES
    for update in updates:
        assert 0 <= update.limit_id <= 65535
        assert 0 <= update.sequence < 2**32
        assert isinstance(update.quantity, Quantity)
        assert 0 <= update.epoch < 16
        assert math.isfinite(update.value)
        assert abs(update.value) <= MAX_VALUE
        assert update.limit_id or not update.value
        assert 0 <= update.weight <= MAX_WEIGHT
    # Minus zero is a zero that is kept.
    key_id = datagram[1] >> 6
    assert b"".join(encode(update, key_id) for update in updates) == datagram[:-tag_size]
    return True


def seeds() -> list[bytes]:
    updates = [
        Update(1, 0, Quantity.RATE, 0, 0.0, 1.0),
        Update(65535, 2**32 - 1, Quantity.WEIGHT, 15, -MAX_VALUE, MAX_WEIGHT),
        Update(0, 7, Quantity.RATE, 3, 0.0, 0.5),
    ]
    bodies = [encode(update, key_id) for key_id, update in enumerate(updates)]
    together = b"".join(map(encode, updates))
    return [body + bytes(tag) for body in [*bodies, together] for tag in TAG_SIZES]


TARGET = Target(check, seeds, max_bytes=size(MAX_UPDATES + 1, 16))
