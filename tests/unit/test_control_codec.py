"""The codec of control messages: golden bytes and every reason for refusal."""

from dataclasses import replace

import pytest

from drld.errors import WireError
from drld.gossip.wire.control_codec import (
    MAX_CONTROL_SIZE,
    MAX_RUMOURS,
    NO_END,
    Control,
    End,
    Hello,
    Kind,
    Rumour,
    State,
)
from drld.gossip.wire.message import HEADER, LONG_TAG_SIZE, codec_of

from ..wire import decode_control_untrusted, encode_control

GREETING = Hello(mine=End(0x0102030405060708, 1), yours=NO_END, nonce=9, echo=0)
RUMOUR = Rumour(subject=5, life=6, counter=7, state=State.SUSPECT, accusers=0b100001)
PROBE = Control(Kind.PROBE, sequence=258, target=2**64 - 1, digest=3, rumours=(RUMOUR,))


def test_each_message_has_its_golden_bytes() -> None:
    assert encode_control(GREETING, 1, 0) == bytes.fromhex(
        "21 40 0000 00000000"
        "0102030405060708 00000001 0000000000000000 00000000 0000000000000009 0000000000000000"
    )
    assert encode_control(PROBE, 2, 77) == bytes.fromhex(
        "22 80 0000 0000004d 00000102 ffffffffffffffff 0000000000000003"
        "0000000000000005 0000000000000006 00000007 85"
    )


def test_the_largest_message_fits_its_bound() -> None:
    largest = encode_control(replace(PROBE, rumours=(RUMOUR,) * MAX_RUMOURS))
    assert len(largest) + LONG_TAG_SIZE <= MAX_CONTROL_SIZE


def patched(message: Hello | Control, **bytes_at: int) -> bytes:
    datagram = bytearray(encode_control(message))
    for where, byte in bytes_at.items():
        datagram[int(where[2:])] = byte
    return bytes(datagram)


@pytest.mark.parametrize(
    ("datagram", "reason"),
    [
        (b"", "length"),
        (patched(PROBE)[:20], "length"),
        (patched(PROBE)[:-1], "length"),
        (patched(PROBE) + b"\0", "length"),
        (patched(GREETING)[:-1], "length"),
        (patched(GREETING) + b"\0", "length"),
        (patched(PROBE)[:28] + bytes((MAX_RUMOURS + 1) * 21), "length"),
        (patched(GREETING)[: HEADER.size], "length"),
        (patched(PROBE, at0=0x12), "version"),
        (patched(PROBE, at0=0x2E), "kind"),
        (patched(PROBE, at0=0x2F), "kind"),
        (patched(PROBE, at1=1), "reserved"),
        (patched(PROBE, at1=0x20), "reserved"),
        (patched(GREETING, at3=1), "reserved"),
        (patched(GREETING, at7=1), "reserved"),
        (patched(replace(GREETING, nonce=0)), "reserved"),
        (patched(replace(GREETING, mine=NO_END)), "reserved"),
        (patched(replace(GREETING, mine=End(1, 0))), "reserved"),
        (patched(PROBE, at2=1), "reserved"),
        (patched(PROBE, at3=1), "reserved"),
        (patched(PROBE, at48=0b1000), "rumour"),
        (patched(PROBE, at48=255), "rumour"),
    ],
)
def test_each_refusal_has_its_reason(datagram: bytes, reason: str) -> None:
    with pytest.raises(WireError) as caught:
        decode_control_untrusted(datagram)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    "message",
    [
        replace(PROBE, sequence=2**32),
        replace(PROBE, target=-1),
        replace(PROBE, digest=2**64),
        replace(PROBE, rumours=(RUMOUR,) * (MAX_RUMOURS + 1)),
        replace(PROBE, rumours=(replace(RUMOUR, counter=-1),)),
        replace(GREETING, echo=2**64),
    ],
)
def test_an_encoder_refuses_what_a_decoder_would(message: Hello | Control) -> None:
    with pytest.raises(ValueError, match=r"fit|kind"):
        encode_control(message)


def test_a_codec_writes_its_own_kind_alone() -> None:
    with pytest.raises(ValueError, match="must be of kind 3"):
        codec_of(Kind.ACK).encode(PROBE, 0, 0)
