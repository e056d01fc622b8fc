import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drld.capture.verdicts import Verdicts

QUEUE = 4711


def messages(content: bytes) -> list[tuple[int, int]]:
    """(verdict, id) of each batch verdict, read as the kernel reads them."""
    found = []
    while content:
        length, kind, flags = struct.unpack_from("=IHH", content)
        assert (kind, flags) == (0x0303, 1)
        family, version, queue = struct.unpack_from("!BBH", content, 16)
        assert (family, version, queue) == (socket.AF_UNSPEC, 0, QUEUE)
        assert struct.unpack_from("=HH", content, 20) == (length - 20, 2)
        found.append(struct.unpack_from("!II", content, 24))
        assert length == 32
        content = content[length:]
    return found


def test_equal_verdicts_are_one_message() -> None:
    verdicts = Verdicts(QUEUE)
    for number in (7, 8, 11):
        verdicts.give(number, True)
    assert messages(verdicts.take()) == [(1, 11)]


def test_a_packet_is_not_decided_twice() -> None:
    verdicts = Verdicts(QUEUE)
    assert verdicts.take() == b""
    verdicts.give(1, False)
    assert messages(verdicts.take()) == [(0, 1)]
    assert verdicts.take() == b""
    verdicts.give(2, False)
    assert messages(verdicts.take()) == [(0, 2)]


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
