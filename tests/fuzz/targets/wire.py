"""Updates off the wire, of any fabric: valid ones, or a `WireError` with a known reason."""

from __future__ import annotations

import math

from drld.gossip.fabrics.mesh_update import MeshUpdate
from drld.gossip.fabrics.pushsum_update import MAX_WEIGHT, PushsumUpdate
from drld.gossip.fabrics.tree_ranks import Role
from drld.gossip.fabrics.tree_update import MAX_MEMBERS, TreeUpdate
from drld.gossip.wire.message import head_untrusted
from drld.gossip.wire.update_codec import MAX_UPDATES, MAX_VALUE, TAG_SIZES, UpdateCodec, size
from drld.model import HEARTBEAT, Quantity, Update
from tests import wire
from tests.fuzz.targets.base import Target, unless_refused

REASONS = {
    *("length", "version", "kind", "key", "limit", "value"),
    *("reserved", "quantity", "rest", "weight", "members"),
}


def check(datagram: bytes) -> bool:
    """Whatever the length of the tag is."""
    accepted = [check_updates(datagram, tag_size) for tag_size in TAG_SIZES]
    return True in accepted


def check_updates(datagram: bytes, tag_size: int) -> bool:
    """Decode; what is accepted is within bounds, and exactly what its encoding says."""
    head = unless_refused(lambda: head_untrusted(datagram), REASONS)
    if head is None:
        return False
    codec, key_id = head
    if not isinstance(codec, UpdateCodec):
        return False
    content = datagram[:-tag_size]
    updates = unless_refused(lambda: codec.decode_untrusted(content), REASONS)
    if updates is None:
        return False
    assert len(datagram) == size(len(updates), tag_size)
    assert 1 <= len(updates) <= MAX_UPDATES
    for update in updates:
        check_update(update)
    # Minus zero is a zero that is kept.
    assert codec.encode(updates, key_id) == content
    return True


def check_update(update: Update) -> None:
    """Whether all fields are within their bounds."""
    assert 0 <= update.limit_id <= 65535
    assert 0 <= update.sequence < 2**32
    assert isinstance(update.quantity, Quantity)
    assert isinstance(update.hears, bool)
    assert math.isfinite(update.value)
    assert abs(update.value) <= MAX_VALUE
    assert update.limit_id != HEARTBEAT or not update.value
    if isinstance(update, MeshUpdate):
        assert update.value >= 0
        assert isinstance(update.whole, bool)
        assert update.rest is None or 0 <= update.rest <= MAX_VALUE
    elif isinstance(update, PushsumUpdate):
        assert 0 <= update.epoch < 16
        assert 0 <= update.weight <= MAX_WEIGHT
        # A peer that is heard may have been given nothing yet in this epoch.
        assert not update.weight or (update.hears and update.limit_id != HEARTBEAT)
    else:
        assert isinstance(update, TreeUpdate)
        assert update.value >= 0
        assert isinstance(update.role, Role)
        assert 0 <= update.members <= MAX_MEMBERS
        assert (update.members > 0) == update.hears


def seeds() -> list[bytes]:
    """Updates of each fabric, one and several."""
    groups: list[list[Update]] = [
        [wire.mesh(1, 0, 0.0, hears=False), wire.mesh(65535, 2**32 - 1, MAX_VALUE, rest=MAX_VALUE)],
        [wire.mesh(2, 3, 4.0, whole=True), wire.mesh(HEARTBEAT, 7, 0.0, whole=True)],
        [wire.mesh(4, 5, 6.0), wire.mesh(4, 6, 7.0, Quantity.BACKLOG, rest=8.0)],
        [wire.pushsum(1, 0, 0.0, 1.0), wire.pushsum(9, 1, -MAX_VALUE, MAX_WEIGHT, epoch=15)],
        [wire.pushsum(1, 0, 0.0, 0.0, Quantity.WEIGHT), wire.pushsum(HEARTBEAT, 7, 0.0, 0.0)],
        [wire.tree(1, 0, Role.PARENT, 5.0, 1), wire.tree(9, 1, Role.CHILD, MAX_VALUE, MAX_MEMBERS)],
        [wire.tree(HEARTBEAT, 7, Role.CANDIDATE, 0.0, 0), wire.tree(2, 3, Role.NONE, 0.0, 8)],
    ]
    return [
        b"".join(wire.encode(update, key_id % 4) for update in updates) + bytes(tag)
        for key_id, group in enumerate(groups)
        for updates in (group[:1], group)
        for tag in TAG_SIZES
    ]


TARGET = Target(check, seeds, max_bytes=size(MAX_UPDATES + 1, 16))
