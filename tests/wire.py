"""Messages as they are on the wire, and updates of each fabric in a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from drld.gossip.fabrics.mesh_update import MESH, MeshUpdate
from drld.gossip.fabrics.pushsum_update import PUSHSUM, PushsumUpdate
from drld.gossip.fabrics.tree_ranks import Role
from drld.gossip.fabrics.tree_update import TREE, TreeUpdate
from drld.gossip.transport import Transport
from drld.gossip.wire.control_codec import Control, Hello, Kind
from drld.gossip.wire.message import codec_of, head_untrusted, number_of
from drld.gossip.wire.update_codec import UpdateCodec
from drld.model import Quantity, Update

CODECS: Mapping[type[Update], UpdateCodec[Any]] = {
    MeshUpdate: MESH,
    PushsumUpdate: PUSHSUM,
    TreeUpdate: TREE,
}
BY_FABRIC: Mapping[str, UpdateCodec[Any]] = {"mesh": MESH, "pushsum": PUSHSUM, "tree": TREE}
U = TypeVar("U", bound=Update)


def mesh(
    limit_id: int,
    sequence: int,
    value: float,
    quantity: Quantity = Quantity.RATE,
    *,
    hears: bool = True,
    whole: bool = False,
    rest: float | None = None,
) -> MeshUpdate:
    return MeshUpdate(limit_id, sequence, quantity, hears, value, whole, rest)


def pushsum(
    limit_id: int,
    sequence: int,
    value: float,
    weight: float,
    quantity: Quantity = Quantity.RATE,
    *,
    epoch: int = 0,
    hears: bool | None = None,
) -> PushsumUpdate:
    """An update whose sender hears its receiver, by default if it has given it weight."""
    hears = weight > 0 if hears is None else hears
    return PushsumUpdate(limit_id, sequence, quantity, hears, value, epoch, weight)


def tree(
    limit_id: int,
    sequence: int,
    role: Role,
    value: float,
    members: int,
    *,
    quantity: Quantity = Quantity.RATE,
) -> TreeUpdate:
    """An update whose sender hears its receiver if it counts any members."""
    return TreeUpdate(limit_id, sequence, quantity, members > 0, value, role, members)


def kind_of(message: object) -> int:
    """The datagram of an update or a control message."""
    if isinstance(message, Update):
        return CODECS[type(message)].kind
    return message.kind if isinstance(message, Control) else Kind.HELLO


def encode(update: Update, key_id: int = 0) -> bytes:
    """A datagram with one update, without its tag."""
    return CODECS[type(update)].encode([update], key_id)


def carried(update: U) -> U:
    """An update as it comes off the wire."""
    (arrived,) = CODECS[type(update)].decode_untrusted(encode(update))
    return cast(U, arrived)


def encode_control(message: Hello | Control, key_id: int = 0, number: int = 0) -> bytes:
    """A datagram with a control message, without its tag."""
    return codec_of(kind_of(message)).encode(message, key_id, number)


def decode_control_untrusted(content: bytes) -> tuple[Hello | Control, int]:
    """A control message without its tag, and its number."""
    codec, _ = head_untrusted(content)
    return codec.decode_untrusted(content), number_of(content)


def taken(transport: Transport, refused: Mapping[int, str] | None = None) -> list[tuple[str, Any]]:
    """All that is pending: updates one by one, and other messages."""
    got: list[tuple[str, Any]] = []

    def deliver(peer: str, _kind: int, body: Any) -> None:
        got.extend((peer, message) for message in (body if isinstance(body, list) else [body]))

    transport.receive(deliver, refused or {})
    return got
