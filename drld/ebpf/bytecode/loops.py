"""Loops as every kernel takes them.

The verifier of kernels before 6.7 takes a loop that a jump closes, but not one that an ordinary
instruction or a call closes by falling into it ("back-edge from insn"), and that is how a compiler
lays out a loop that is entered in its middle. A jump to the next instruction closes it as well. It
costs a packet nothing: the kernel removes it after it has verified the program.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence, Set

BYTES = 8
"""Of an instruction."""

_JUMP, _JUMP32 = 5, 6
"""Classes of instructions: the low three bits of the operation."""
_GOTO, _CALL, _EXIT, _WIDE = 0x05, 0x85, 0x95, 0x18
_NO_GOTO = bytes([_GOTO]) + bytes(BYTES - 1)
"""A jump by nothing."""


def closed_by_jumps(instructions: bytes) -> bytes:
    """The program with a jump where a loop was closed without one.

    Raises:
        ValueError: a jump cannot reach that far any more.
    """
    code = [instructions[at : at + BYTES] for at in range(0, len(instructions), BYTES)]
    return b"".join(inserted(code, dict.fromkeys(_entered_by_falling(code), _NO_GOTO)))


def inserted(code: Sequence[bytes], before: Mapping[int, bytes]) -> list[bytes]:
    """The program with instructions put before these: who falls into one meets it, not who jumps.

    Raises:
        ValueError: a jump cannot reach that far any more.
    """
    moved = list(_moved(len(code), before.keys()))
    made = []
    for index, each in enumerate(code):
        if index in before:
            made.append(before[index])
        target = _target(code, index)
        if target is None:
            made.append(each)
            continue
        # A jump leads to the instruction itself, past the jump that was put before it.
        offset = moved[target] - moved[index] - 1
        try:
            made.append(each[:2] + struct.pack("<h", offset) + each[4:])
        except struct.error:
            raise ValueError(f"the jump at instruction {index} is too far") from None
    return made


def _moved(count: int, before: Set[int]) -> Iterator[int]:
    """Where each instruction is once others were put before these."""
    shift = 0
    for index in range(count):
        shift += index in before
        yield index + shift


def _target(code: Sequence[bytes], index: int) -> int | None:
    """Where an instruction may jump to."""
    operation = code[index][0]
    if operation & 7 not in (_JUMP, _JUMP32) or operation in (_CALL, _EXIT):
        return None
    return index + 1 + int(struct.unpack_from("<h", code[index], 2)[0])


def _entered_by_falling(code: Sequence[bytes]) -> Iterator[int]:
    """Heads of loops that some way closes without a jump: a depth-first search, as the kernel's."""
    on_way, done = {0}, set[int]()
    way = [(0, iter(_next(code, 0)))]
    while way:
        index, following = way[-1]
        for each in following:
            if each in on_way:
                operation = code[index][0]
                if operation & 7 not in (_JUMP, _JUMP32) or operation == _CALL:
                    yield each
            elif each not in done:
                on_way.add(each)
                way.append((each, iter(_next(code, each))))
                break
        else:
            way.pop()
            on_way.remove(index)
            done.add(index)


def _next(code: Sequence[bytes], index: int) -> list[int]:
    operation = code[index][0]
    if operation == _EXIT:
        return []
    if operation == _WIDE:
        return [index + 2]
    target = _target(code, index)
    if target is None:
        return [index + 1]
    return [target] if operation == _GOTO else [index + 1, target]
