"""Calls of atomic operations become the instructions; all else is executed as before."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice
from random import Random

from hypothesis import example, given
from hypothesis import strategies as st

from drld.ebpf.bytecode.atomics import OPERATIONS, with_atomics

MOVE, GOTO, IF, CALL, EXIT = 0xB7, 0x05, 0xA5, 0x85, 0x95
HELPER = 5
STEPS = 200


def instruction(operation: int, offset: int = 0, value: int = 0) -> bytes:
    return struct.pack("<BBhi", operation, 0, offset, value)


@st.composite
def programs(draw: st.DrawFn) -> bytes:
    """Instructions, jumps among them, and calls of helpers and of atomic operations."""
    kinds = draw(st.lists(st.sampled_from([MOVE, GOTO, IF, CALL, CALL]), max_size=20))
    made = b""
    for number, kind in enumerate(kinds):
        offset, value = 0, number
        if kind in (GOTO, IF):
            offset = draw(st.integers(0, len(kinds))) - number - 1
        elif kind == CALL:
            value = draw(st.sampled_from([HELPER, *OPERATIONS]))
        made += instruction(kind, offset, value)
    return made + instruction(EXIT)


def steps(program: bytes, decisions: Random) -> Iterator[bytes]:
    """The executed instructions, with random branches; a jump counts by its kind alone."""
    index = 0
    while True:
        each = program[8 * index : 8 * index + 8]
        operation, _, offset, _ = struct.unpack("<BBhi", each)
        index += 1
        yield bytes([operation]) if operation in (GOTO, IF) else each
        if operation == EXIT:
            return
        if operation == GOTO or (operation == IF and decisions.random() < 0.5):
            index += offset


def with_operations(executed: Iterator[bytes]) -> Iterator[bytes]:
    for each in executed:
        number = int.from_bytes(each[4:], "little")
        if each[0] == CALL and number in OPERATIONS:
            yield from map(bytes.fromhex, OPERATIONS[number])
        else:
            yield each


@given(programs(), st.integers())
@example(instruction(CALL, 0, 0x7D000001) + instruction(IF, -2) + instruction(EXIT), 0)
def test_atomic_operations_replace_the_calls(program: bytes, seed: int) -> None:
    expected = with_operations(steps(program, Random(seed)))
    assert list(islice(steps(with_atomics(program), Random(seed)), STEPS)) == list(
        islice(expected, STEPS)
    )
