"""Closes loops with jumps, as kernels before 6.7 require.

Their verifier accepts a loop that a jump closes. It refuses a loop that an ordinary instruction or
a call closes by falling through to the loop's head ("back-edge from insn"). A compiler lays out a
loop in this way if it is entered in its middle. A jump by nothing before the head closes such a
loop. It costs a packet nothing, as the kernel removes it after verification.

Why a rewriter: the compiler chooses the layout, and no construct of C decides it. LLVM 14 (Debian
12, Linux 6.1) leaves one such loop in bpf/packet.h, and LLVM 11 none; another compiler or a change
of the C code moves them. It can go when the oldest supported kernel is 6.7.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence, Set

BYTES = 8
"""Size of an instruction."""

_JUMP, _JUMP32 = 5, 6
"""Classes of instructions: the low three bits of the operation."""
_GOTO, _CALL, _EXIT, _WIDE = 0x05, 0x85, 0x95, 0x18
_NO_GOTO = bytes([_GOTO]) + bytes(BYTES - 1)
"""A jump to the next instruction."""


def closed_by_jumps(instructions: bytes) -> bytes:
    """The program with a jump before the head of each loop that was closed without one.

    Raises:
        ValueError: a jump becomes too long for an instruction.
    """
    code = [instructions[at : at + BYTES] for at in range(0, len(instructions), BYTES)]
    return b"".join(inserted(code, dict.fromkeys(_entered_by_falling(code), _NO_GOTO)))


def inserted(code: Sequence[bytes], before: Mapping[int, bytes]) -> list[bytes]:
    """The program with instructions inserted: jumps to the next instruction pass over them.

    Args:
        code: the program's instructions.
        before: the new instructions, by the index of the instruction that follows.

    Raises:
        ValueError: a jump becomes too long for an instruction.
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
        # A jump leads to its target, past the inserted instruction.
        offset = moved[target] - moved[index] - 1
        try:
            made.append(each[:2] + struct.pack("<h", offset) + each[4:])
        except struct.error:
            raise ValueError(f"the jump at instruction {index} is too far") from None
    return made


def _moved(count: int, before: Set[int]) -> Iterator[int]:
    """The new index of each instruction."""
    shift = 0
    for index in range(count):
        shift += index in before
        yield index + shift


def _target(code: Sequence[bytes], index: int) -> int | None:
    """The index to which an instruction may jump; None: it is no jump."""
    operation = code[index][0]
    if operation & 7 not in (_JUMP, _JUMP32) or operation in (_CALL, _EXIT):
        return None
    return index + 1 + int(struct.unpack_from("<h", code[index], 2)[0])


def _entered_by_falling(code: Sequence[bytes]) -> Iterator[int]:
    """The heads of loops that no jump closes, by a depth-first search like the kernel's."""
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
