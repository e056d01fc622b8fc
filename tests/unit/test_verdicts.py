"""Messages to the kernel's packet queue: verdicts in batches."""

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drld.capture.verdicts import Verdicts, copying

QUEUE = 4711


BATCH, ONE, CONFIGURE = 0x0303, 0x0301, 0x0302


def parsed(content: bytes) -> list[tuple[int, dict[int, bytes]]]:
    """Kind and attributes of each message, read as the kernel reads them."""
    found = []
    while content:
        length, kind, flags = struct.unpack_from("=IHH", content)
        assert flags == 1
        assert length % 4 == 0
        family, version, queue = struct.unpack_from("!BBH", content, 16)
        assert (family, version, queue) == (socket.AF_UNSPEC, 0, QUEUE)
        attributes, offset = {}, 20
        while offset < length:
            size, name = struct.unpack_from("=HH", content, offset)
            attributes[name] = content[offset + 4 : offset + size]
            offset += (size + 3) & ~3
        assert offset == length
        found.append((kind, attributes))
        content = content[length:]
    return found


def messages(content: bytes) -> list[tuple[int, int]]:
    """(verdict, id) of each batch verdict."""
    found = parsed(content)
    assert all((kind, set(attributes)) == (BATCH, {2}) for kind, attributes in found)
    return [struct.unpack("!II", attributes[2]) for _, attributes in found]


def test_a_rewritten_packet_is_decided_between_its_neighbours() -> None:
    verdicts = Verdicts(QUEUE)
    for number in (1, 2):
        verdicts.give(number, True)
    verdicts.rewrite(3, b"\x45 with an odd length...")
    verdicts.give(4, True)
    assert parsed(verdicts.take()) == [
        (BATCH, {2: struct.pack("!II", 1, 2)}),
        (ONE, {2: struct.pack("!II", 1, 3), 10: b"\x45 with an odd length..."}),
        (BATCH, {2: struct.pack("!II", 1, 4)}),
    ]
    assert verdicts.take() == b""


def test_the_copy_range_is_set_in_the_kernels_format() -> None:
    # struct nfqnl_msg_config_params: __be32 copy_range, __u8 copy_mode (2: the packet); packed
    assert parsed(copying(QUEUE, 3800)) == [(CONFIGURE, {2: struct.pack("!IB", 3800, 2)})]


def test_equal_verdicts_are_one_message() -> None:
    verdicts = Verdicts(QUEUE)
    for number in (7, 8, 11):
        verdicts.give(number, True)
    assert messages(verdicts.take()) == [(1, 11)]


@pytest.mark.parametrize("first", [1, 2**32 - 5])
@given(given_verdicts=st.lists(st.lists(st.booleans())))
def test_the_kernel_decides_every_packet_as_given(
    first: int, given_verdicts: list[list[bool]]
) -> None:
    verdicts = Verdicts(QUEUE)
    packet_id = first
    for batch in given_verdicts:
        waiting = []
        for forward in batch:
            verdicts.give(packet_id, forward)
            waiting.append(packet_id)
            packet_id = (packet_id + 1) % 2**32
        decided = []
        for verdict, last in messages(verdicts.take()):
            # Everything that still waits, up to `last`.
            count = waiting.index(last) + 1
            decided += [bool(verdict)] * count
            del waiting[:count]
        assert decided == batch
