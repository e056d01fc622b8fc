"""The netlink messages of the delay line, byte by byte."""

from __future__ import annotations

import struct

import pytest

from testbed import nfqueue_wire as wire


def packet_message(
    queue: int, packet: int, stamp: tuple[int, int] | None = None, extra: bytes = b""
) -> bytearray:
    """The kernel's message about a queued packet."""
    attributes = struct.pack("=HH", 11, 1) + struct.pack(">IHB", packet, 0x0800, 2) + b"\0"
    attributes += struct.pack("=HH", 8, 5) + struct.pack(">I", 4)
    attributes += extra
    if stamp is not None:
        attributes += struct.pack("=HH", 20, 4) + struct.pack(">QQ", *stamp)
    header = struct.pack("=IHHII", 20 + len(attributes), 0x300, 0, 0, 0)
    return bytearray(header + struct.pack(">BBH", 2, 0, queue) + attributes)


def test_a_packet_is_read_with_its_queue_id_and_arrival_time() -> None:
    message = packet_message(3, 77, (1_700_000_000, 123_456))
    assert wire.parse(message, len(message)) == wire.Packet(3, 77, 1_700_000_000_123_456_000)


def test_a_packet_without_a_time_has_none() -> None:
    message = packet_message(0xABCD, 1)
    assert wire.parse(message, len(message)) == wire.Packet(0xABCD, 1, None)


def test_attributes_that_are_not_needed_are_skipped_padding_included() -> None:
    odd = struct.pack("=HH", 7, 9) + b"abc" + b"\0"
    message = packet_message(1, 2, (5, 6), odd)
    assert wire.parse(message, len(message)) == wire.Packet(1, 2, 5_000_006_000)


def test_bytes_after_the_message_are_not_read() -> None:
    message = packet_message(1, 2)
    size = len(message)
    message += packet_message(1, 9, (5, 6))
    assert wire.parse(message, size) == wire.Packet(1, 2, None)


@pytest.mark.parametrize("errno", [0, 1, 16])
def test_an_answer_to_a_message_carries_its_errno(errno: int) -> None:
    answer = bytearray(struct.pack("=IHHIIi", 36, 2, 0, 0, 0, -errno) + bytes(16))
    assert wire.parse(answer, len(answer)) == wire.Failure(errno)


def test_other_messages_are_refused() -> None:
    stranger = bytearray(struct.pack("=IHHII", 16, 0x10, 0, 0, 0))
    with pytest.raises(ValueError, match="unexpected"):
        wire.parse(stranger, len(stranger))
    nameless = bytearray(struct.pack("=IHHIIBBH", 20, 0x300, 0, 0, 0, 2, 0, 0))
    with pytest.raises(ValueError, match="without an id"):
        wire.parse(nameless, len(nameless))


def test_a_batch_verdict_accepts_through_an_id() -> None:
    message = wire.accept_through(3, 77)
    assert struct.unpack("=IHHII", message[:16]) == (32, 0x303, 1, 0, 0)
    assert message[16:20] == bytes([0, 0, 0, 3])
    assert struct.unpack("=HH", message[20:24]) == (12, 2)
    assert struct.unpack(">II", message[24:]) == (1, 77)


def test_a_drop_is_a_verdict_on_one_packet() -> None:
    message = wire.drop(3, 78)
    assert struct.unpack("=IH", message[:6]) == (32, 0x301)
    assert struct.unpack(">II", message[24:]) == (0, 78)


def test_binding_asks_for_metadata_of_whole_super_packets_and_for_an_answer() -> None:
    command, parameters = wire.bind(5, 1000)
    assert struct.unpack("=IHH", command[:8]) == (28, 0x302, 5)
    assert command[24:28] == bytes([1, 0, 0, 0])
    assert parameters[20:] == (
        struct.pack("=HH", 9, 2) + struct.pack(">IB", 0, 1) + bytes(3)
        + struct.pack("=HH", 8, 3) + struct.pack(">I", 1000)
        + struct.pack("=HH", 8, 5) + struct.pack(">I", 4)
        + struct.pack("=HH", 8, 4) + struct.pack(">I", 4)
    )  # fmt: skip
