"""The update codec: golden bytes, the documented example, every reason for refusal."""

import math
import struct
from dataclasses import replace

import pytest

from drld.errors import WireError
from drld.gossip.wire.update_codec import (
    BODY_SIZE,
    LAYOUT,
    MAX_UPDATES,
    MAX_VALUE,
    MAX_WEIGHT,
    UPDATE_KINDS,
    decode_untrusted,
    encode,
    size,
    to_float32,
)
from drld.model import HEARTBEAT, Quantity, Update

UPDATE = Update(limit_id=1, sequence=258, quantity=Quantity.WEIGHT, epoch=5, value=3.5, weight=0.25)


def patched(**fields: int | float) -> bytes:
    """A datagram in which some fields are replaced, past the encoder's own checks."""
    offset = 0
    body = bytearray(encode(UPDATE))
    for code, layout in LAYOUT.words:
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
    return bytes(body) + bytes(4)


@pytest.mark.parametrize(
    ("update", "body"),
    [
        (UPDATE, "10 15 0001 00000102 40600000 3e800000"),
        (
            Update(65535, 2**32 - 1, Quantity.RATE, 15, -1.0, 1.0),
            "100fffffffffffffbf8000003f800000",
        ),
        (Update(1, 0, Quantity.RATE, 0, 0.0, 0.0), "10000001000000000000000000000000"),
        (
            Update(258, 1, Quantity.RATE, 1, MAX_VALUE, MAX_WEIGHT),
            "10010102000000015a00000049800000",
        ),
        (Update(7, 1, Quantity.WEIGHT, 0, 0.1, 1 / 3), "10100007000000013dcccccd3eaaaaab"),
    ],
)
def test_golden_bodies(update: Update, body: str) -> None:
    assert encode(update) == bytes.fromhex(body)


def test_sizes_are_those_of_the_paper() -> None:
    assert BODY_SIZE == 16
    assert 20 + 8 + size(1) == 48
    assert 40 + 8 + size(MAX_UPDATES) <= 1280 - 40
    for code, layout in LAYOUT.words:
        assert sum(bits for _, bits in layout) == 8 * struct.calcsize(code)


def test_decoding_undoes_encoding() -> None:
    assert decode_untrusted(encode(UPDATE) + bytes(4)) == [UPDATE]
    assert decode_untrusted(patched()) == [UPDATE]


@pytest.mark.parametrize("fabric", UPDATE_KINDS)
def test_an_update_is_understood_in_its_own_fabric_only(fabric: str) -> None:
    datagram = encode(UPDATE, fabric=fabric) + bytes(4)
    assert decode_untrusted(datagram, fabric=fabric) == [UPDATE]
    for other in UPDATE_KINDS.keys() - {fabric}:
        with pytest.raises(WireError, match="fabric"):
            decode_untrusted(datagram, fabric=other)


def test_a_datagram_holds_up_to_its_most_updates() -> None:
    updates = [replace(UPDATE, limit_id=number + 1) for number in range(MAX_UPDATES)]
    bodies = b"".join(map(encode, updates))
    assert decode_untrusted(bodies + bytes(4)) == updates
    with pytest.raises(WireError, match="bytes"):
        decode_untrusted(bodies + encode(UPDATE) + bytes(4))


def test_one_bad_update_spoils_the_datagram() -> None:
    with pytest.raises(WireError, match="version"):
        decode_untrusted(encode(UPDATE) + patched(version=2))


def test_a_heartbeat_has_no_value() -> None:
    beat = Update(HEARTBEAT, 5, Quantity.RATE, 0, 0.0, 1.0)
    assert decode_untrusted(encode(beat) + bytes(4)) == [beat]


@pytest.mark.parametrize(
    ("datagram", "reason"),
    [
        (b"", "length"),
        (patched()[:-1], "length"),
        (patched() + b"\0", "length"),
        (patched(version=0), "version"),
        (patched(version=2), "version"),
        (patched(kind=1), "kind"),
        (patched(kind=15), "kind"),
        (patched(kind=5), "fabric"),
        (patched(kind=6), "fabric"),
        (patched()[:16] + patched(kind=6), "fabric"),
        (patched()[:16] + patched(key_id=1), "key"),
        (patched(key_id=3)[:16] + patched(), "key"),
        (patched(quantity=2), "quantity"),
        (patched(quantity=3), "quantity"),
        (patched(limit_id=0), "limit"),
        (patched(value=math.nan), "value"),
        (patched(value=math.inf), "value"),
        (patched(value=-math.inf), "value"),
        (patched(value=MAX_VALUE * 1.0001), "value"),
        (patched(value=-MAX_VALUE * 1.0001), "value"),
        (patched(weight=math.nan), "weight"),
        (patched(weight=math.inf), "weight"),
        (patched(weight=-1e-30), "weight"),
        (patched(weight=MAX_WEIGHT * 1.0001), "weight"),
        (patched(version=2, kind=1), "version"),
    ],
)
def test_what_is_refused_has_a_reason(datagram: bytes, reason: str) -> None:
    with pytest.raises(WireError) as caught:
        decode_untrusted(datagram)
    assert caught.value.reason == reason


@pytest.mark.parametrize("value", [MAX_VALUE, -MAX_VALUE, 0.0, 1e-45])
def test_bounds_are_inclusive(value: float) -> None:
    assert decode_untrusted(patched(value=value))[0].value == to_float32(value)
    assert decode_untrusted(patched(weight=MAX_WEIGHT))[0].weight == MAX_WEIGHT


@pytest.mark.parametrize(
    "update",
    [
        replace(UPDATE, limit_id=0),
        replace(UPDATE, limit_id=65536),
        replace(UPDATE, sequence=-1),
        replace(UPDATE, sequence=2**32),
        replace(UPDATE, epoch=16),
        replace(UPDATE, value=math.nan),
        replace(UPDATE, value=MAX_VALUE * 2),
        replace(UPDATE, weight=-0.5),
        replace(UPDATE, weight=math.inf),
    ],
)
def test_an_encoder_refuses_what_a_decoder_would(update: Update) -> None:
    with pytest.raises(ValueError, match="Update"):
        encode(update)


def test_rounding_is_that_of_the_wire() -> None:
    assert to_float32(0.1) != 0.1
    assert decode_untrusted(encode(replace(UPDATE, value=0.1)) + bytes(4))[0].value == to_float32(
        0.1
    )
    assert to_float32(to_float32(0.1)) == to_float32(0.1)
    with pytest.raises(OverflowError):
        to_float32(1e39)
