"""The update codecs: golden bytes, the size of the paper, every reason for refusal."""

import math
import struct
from dataclasses import replace
from typing import Any

import pytest

from drld.errors import WireError
from drld.gossip.fabrics.pushsum_update import MAX_WEIGHT, PUSHSUM, PushsumUpdate
from drld.gossip.fabrics.tree_ranks import Role
from drld.gossip.fabrics.tree_update import MAX_MEMBERS, TREE
from drld.gossip.wire.message import MAX_DATAGRAM, VERSION
from drld.gossip.wire.update_codec import MAX_UPDATES, MAX_VALUE, UPDATE_SIZE, size, to_float32
from drld.model import HEARTBEAT, Quantity, Update

from ..wire import CODECS, carried, encode, mesh, pushsum, tree

MESH_UPDATE = mesh(1, 258, 3.5, Quantity.WEIGHT, rest=0.25)
OWN_SUM = mesh(1, 258, 3.5, Quantity.WEIGHT, whole=True)
PUSHSUM_UPDATE = pushsum(1, 258, 3.5, 0.25, Quantity.WEIGHT, epoch=5)
TREE_UPDATE = tree(1, 258, Role.CHILD, 3.5, 4, quantity=Quantity.WEIGHT)
WRONG: list[dict[str, Any]] = [
    {"limit_id": 0},
    {"limit_id": 65536},
    {"sequence": -1},
    {"sequence": 2**32},
    {"value": math.nan},
    {"value": MAX_VALUE * 2},
]
"""Fields that no fabric sends; heartbeats have no value."""
UPDATES = [MESH_UPDATE, OWN_SUM, PUSHSUM_UPDATE, TREE_UPDATE]


def patched(update: Update, **fields: int | float) -> bytes:
    """An update in which some fields are replaced, past the encoder's own checks."""
    offset = 0
    body = bytearray(encode(update))
    for code, layout in CODECS[type(update)].table.words:
        old = struct.unpack_from(">" + code, body, offset)[0]
        shift = 0
        new = old
        for name, bits in reversed(layout):
            if name in fields:
                if code == "f":
                    new = fields.pop(name)
                else:
                    mask = ((1 << bits) - 1) << shift
                    new = new & ~mask | int(fields.pop(name)) << shift
            shift += bits
        struct.pack_into(">" + code, body, offset, new)
        offset += struct.calcsize(code)
    assert not fields
    return bytes(body)


@pytest.mark.parametrize(
    ("update", "body"),
    [
        (MESH_UPDATE, "25 34 0001 00000102 40600000 3e800000"),
        (OWN_SUM, "25 38 0001 00000102 40600000 00000000"),
        (mesh(1, 258, 3.5, hears=False), "25 00 0001 00000102 40600000 00000000"),
        (mesh(HEARTBEAT, 1, 0.0, rest=MAX_VALUE), "25 24 0000 00000001 00000000 5a000000"),
        (PUSHSUM_UPDATE, "29 35 0001 00000102 40600000 3e800000"),
        (pushsum(65535, 2**32 - 1, -1.0, 1.0, epoch=15), "29 2f ffff ffffffff bf800000 3f800000"),
        (pushsum(1, 0, 0.0, 0.0), "29 00 0001 00000000 00000000 00000000"),
        (pushsum(7, 1, 0.1, 1 / 3), "29 20 0007 00000001 3dcccccd 3eaaaaab"),
        (TREE_UPDATE, "26 38 0001 00000102 40600000 00000004"),
        (tree(1, 0, Role.PARENT, 0.0, 0), "26 04 0001 00000000 00000000 00000000"),
        (
            tree(258, 1, Role.CANDIDATE, MAX_VALUE, MAX_MEMBERS),
            "26 2c 0102 00000001 5a000000 00100000",
        ),
    ],
)
def test_each_update_has_its_golden_body(update: Update, body: str) -> None:
    assert encode(update) == bytes.fromhex(body)


def test_sizes_are_those_of_the_paper() -> None:
    assert 20 + 8 + size(1) == 48
    assert size(MAX_UPDATES, 16) == MAX_DATAGRAM <= 1280 - 40 - 8 - 40
    for codec in CODECS.values():
        assert codec.table.size == UPDATE_SIZE == 16
        for code, layout in codec.table.words:
            assert sum(bits for _, bits in layout) == 8 * struct.calcsize(code)


@pytest.mark.parametrize("update", UPDATES)
def test_a_datagram_holds_up_to_its_most_updates(update: Update) -> None:
    codec = CODECS[type(update)]
    updates = [replace(update, limit_id=number + 1) for number in range(MAX_UPDATES)]
    content = codec.encode(updates, 3)
    assert codec.decode_untrusted(content) == updates
    with pytest.raises(WireError, match="bytes"):
        codec.decode_untrusted(content + content[:UPDATE_SIZE])
    for wrong in ([], [*updates, update]):
        with pytest.raises(ValueError, match="updates"):
            codec.encode(wrong, 3)


def test_a_heartbeat_of_pushsum_carries_nothing_though_it_hears() -> None:
    beat = replace(PUSHSUM_UPDATE, limit_id=HEARTBEAT, value=0.0, weight=0.0)
    assert beat.hears
    assert carried(beat) == beat


@pytest.mark.parametrize("update", UPDATES)
def test_a_second_quantity_is_carried_by_tree_and_mesh(update: Update) -> None:
    backlog = replace(update, quantity=Quantity.BACKLOG)
    if isinstance(update, PushsumUpdate):
        with pytest.raises(ValueError, match="does not carry"):
            encode(backlog)
    else:
        assert carried(backlog) == backlog
        assert encode(backlog)[1] ^ encode(replace(update, quantity=Quantity.RATE))[1] == 2


def common(update: Update) -> list[tuple[bytes, str]]:
    """Updates that every fabric refuses, with the reason."""
    body = encode(update)
    return [
        (b"", "length"),
        (body[:-1], "length"),
        (body + b"\0", "length"),
        (body + patched(update, version=VERSION - 1), "version"),
        (body + patched(update, version=VERSION - 1, kind=1), "version"),
        (body + patched(update, kind=1), "kind"),
        *((body + encode(other), "kind") for other in UPDATES if type(other) is not type(update)),
        (body + patched(update, key_id=1), "key"),
        (patched(update, key_id=3) + body, "key"),
        (patched(update, limit_id=0), "limit"),
        (patched(update, value=math.nan), "value"),
        (patched(update, value=math.inf), "value"),
        (patched(update, value=-math.inf), "value"),
        (patched(update, value=MAX_VALUE * 1.0001), "value"),
        (patched(update, value=-MAX_VALUE * 1.0001), "value"),
    ]


@pytest.mark.parametrize(
    ("update", "content", "reason"),
    [
        *((update, content, reason) for update in UPDATES for content, reason in common(update)),
        *(
            (MESH_UPDATE, patched(MESH_UPDATE, **{name: number}), reason)
            for name, number, reason in (
                ("value", -1.0, "value"),
                ("reserved", 1, "reserved"),
                ("second", 1, "quantity"),
                ("rest_told", 0, "reserved"),
                ("rest", -1e-30, "rest"),
                ("rest", math.nan, "rest"),
                ("rest", math.inf, "rest"),
                ("rest", MAX_VALUE * 1.0001, "rest"),
            )
        ),
        *(
            (OWN_SUM, patched(OWN_SUM, rest=rest), "reserved")
            for rest in (1.0, -0.0, math.nan, math.inf)
        ),
        *(
            (PUSHSUM_UPDATE, patched(PUSHSUM_UPDATE, **{name: number}), "weight")
            for name, number in (
                ("weight", math.nan),
                ("weight", math.inf),
                ("weight", -1e-30),
                ("weight", MAX_WEIGHT * 1.0001),
                ("hears", 0),
            )
        ),
        (PUSHSUM_UPDATE, patched(PUSHSUM_UPDATE, limit_id=0, value=0.0), "weight"),
        *(
            (TREE_UPDATE, patched(TREE_UPDATE, **{name: number}), reason)
            for name, number, reason in (
                ("value", -1.0, "value"),
                ("reserved", 1, "reserved"),
                ("second", 1, "quantity"),
                ("members", 0, "members"),
                ("members", MAX_MEMBERS + 1, "members"),
                ("members", 2**32 - 1, "members"),
                ("hears", 0, "members"),
            )
        ),
    ],
)
def test_each_refusal_has_its_reason(update: Update, content: bytes, reason: str) -> None:
    with pytest.raises(WireError) as caught:
        CODECS[type(update)].decode_untrusted(content)
    assert caught.value.reason == reason


@pytest.mark.parametrize("update", UPDATES)
def test_a_key_that_was_accepted_before_is_refused_beside_another_one(update: Update) -> None:
    codec = CODECS[type(update)]
    other = patched(update, key_id=2)
    assert codec.decode_untrusted(other) == [update]
    with pytest.raises(WireError) as caught:
        codec.decode_untrusted(encode(update) + other)
    assert caught.value.reason == "key"


@pytest.mark.parametrize("value", [MAX_VALUE, -MAX_VALUE, 0.0, -0.0, 1e-45])
def test_bounds_are_inclusive(value: float) -> None:
    (update,) = PUSHSUM.decode_untrusted(patched(PUSHSUM_UPDATE, value=value))
    assert update.value == to_float32(value)
    assert carried(replace(PUSHSUM_UPDATE, weight=MAX_WEIGHT)).weight == MAX_WEIGHT
    assert carried(replace(MESH_UPDATE, rest=abs(value))).rest == to_float32(abs(value))
    assert carried(replace(TREE_UPDATE, members=MAX_MEMBERS)).members == MAX_MEMBERS


@pytest.mark.parametrize(
    "update",
    [
        *(replace(update, **wrong) for update in UPDATES for wrong in WRONG),
        replace(PUSHSUM_UPDATE, epoch=16),
        replace(PUSHSUM_UPDATE, weight=-0.5),
        replace(PUSHSUM_UPDATE, weight=math.inf),
        replace(PUSHSUM_UPDATE, hears=False),
        replace(MESH_UPDATE, value=-1.0),
        replace(MESH_UPDATE, rest=-1.0),
        replace(MESH_UPDATE, rest=math.inf),
        replace(TREE_UPDATE, value=-1.0),
        replace(TREE_UPDATE, members=-1),
        replace(TREE_UPDATE, members=0),
        replace(TREE_UPDATE, hears=False),
    ],
)
def test_an_encoder_refuses_what_a_decoder_would(update: Update) -> None:
    with pytest.raises(ValueError, match="Update"):
        encode(update)


def test_rounding_is_that_of_the_wire() -> None:
    assert to_float32(0.1) != 0.1
    assert carried(replace(TREE_UPDATE, value=0.1)).value == to_float32(0.1)
    assert to_float32(to_float32(0.1)) == to_float32(0.1)
    with pytest.raises(OverflowError):
        to_float32(1e39)


def test_tree_members_are_whole_numbers() -> None:
    assert TREE.decode_untrusted(encode(TREE_UPDATE))[0].members == 4
