"""Closing loops by jumps changes what a program is made of, and nothing that it does."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drld.ebpf.bytecode.loops import closed_by_jumps

MOVE, WIDE, GOTO, IF, CALL, EXIT = 0xB7, 0x18, 0x05, 0xA5, 0x85, 0x95
STEPS = 200


def instruction(operation: int, offset: int = 0, value: int = 0) -> bytes:
    return struct.pack("<BBhi", operation, 0, offset, value)


NOTHING = instruction(GOTO)


@st.composite
def programs(draw: st.DrawFn) -> bytes:
    """Instructions that have numbers of their own, and jumps among them."""
    kinds = draw(st.lists(st.sampled_from([MOVE, WIDE, GOTO, IF, IF, CALL, EXIT]), max_size=20))
    starts = [sum(1 + (kind == WIDE) for kind in kinds[:index]) for index in range(len(kinds) + 1)]
    made = b""
    for number, kind in enumerate(kinds):
        offset = 0
        if kind in (GOTO, IF):
            offset = draw(st.sampled_from(starts)) - starts[number] - 1
        # One that goes nowhere is not to be taken for one that was put in.
        made += instruction(MOVE if (kind, offset) == (GOTO, 0) else kind, offset, number)
        made += bytes(8) if kind == WIDE else b""
    return made + instruction(EXIT, 0, len(kinds))


def steps(program: bytes, decisions: Random) -> Iterator[tuple[int, int]]:
    """The executed instructions, with random branches: operation and number."""
    index = 0
    while True:
        operation, _, offset, value = struct.unpack_from("<BBhi", program, 8 * index)
        index += 1
        if (operation, offset) == (GOTO, 0):
            continue
        yield operation, value
        if operation == EXIT:
            return
        index += operation == WIDE
        if operation == GOTO or (operation == IF and decisions.random() < 0.5):
            index += offset


@given(programs(), st.integers())
def test_closed_loops_execute_the_same_instructions(program: bytes, seed: int) -> None:
    closed = closed_by_jumps(program)
    assert list(islice(steps(closed, Random(seed)), STEPS)) == list(
        islice(steps(program, Random(seed)), STEPS)
    )


@given(programs())
def test_closing_loops_twice_changes_nothing(program: bytes) -> None:
    closed = closed_by_jumps(program)
    assert closed_by_jumps(closed) == closed


def joined(*code: bytes) -> bytes:
    return b"".join(code)


@pytest.mark.parametrize("last", [MOVE, CALL])
def test_a_loop_entered_in_its_middle_is_closed_by_a_jump(last: int) -> None:
    body = instruction(last, 0, 7)
    program = joined(instruction(GOTO, 1), body, instruction(IF, -2), instruction(EXIT))
    assert closed_by_jumps(program) == joined(
        instruction(GOTO, 2), body, NOTHING, instruction(IF, -3), instruction(EXIT)
    )


def loop_closed_by(jump: Sequence[bytes]) -> bytes:
    return joined(instruction(MOVE), *jump, instruction(EXIT))


@pytest.mark.parametrize(
    "program",
    [
        loop_closed_by([instruction(IF, -2)]),
        loop_closed_by([instruction(IF, 1), instruction(GOTO, -3)]),
        loop_closed_by([instruction(IF, 1), instruction(MOVE)]),
        instruction(EXIT),
    ],
)
def test_programs_without_such_loops_stay_unchanged(program: bytes) -> None:
    assert closed_by_jumps(program) == program


def test_a_jump_too_long_for_an_instruction_is_an_error() -> None:
    many = instruction(MOVE) * (2**15 - 3)
    program = joined(
        instruction(IF, 2**15 - 1),
        instruction(GOTO, 1),
        instruction(MOVE),
        instruction(IF, -2),
        many,
        instruction(EXIT),
    )
    with pytest.raises(ValueError, match="the jump at instruction 0 is too far"):
        closed_by_jumps(program)
