"""Atomic operations that a compiler older than LLVM 12 does not know (bpf/atomics.h).

It makes calls of them, which leave the arguments in r1, r2 and r3, expect the result in r0, and
take r1 to r5 for lost. Each becomes the two instructions that do it.
"""

from __future__ import annotations

from drld.ebpf.bytecode.loops import BYTES, inserted

_CALL = 0x85

OPERATIONS = {
    # lock: r0 = what was at r1; if that is r0, r3 goes there. Before: r0 = r2
    0x7D000001: ("bf20000000000000", "db310000f1000000"),
    # lock: r2 = what was at r1, and r1 gets the sum. After: r0 = r2
    0x7D000002: ("db21000001000000", "bf20000000000000"),
}
"""By the number that is called: the instruction in its place, and the one after it."""


def with_atomics(instructions: bytes) -> bytes:
    """The program with instructions for such calls.

    Raises:
        ValueError: a jump cannot reach that far any more.
    """
    code = [instructions[at : at + BYTES] for at in range(0, len(instructions), BYTES)]
    after = {}
    for index, each in enumerate(code):
        number = int.from_bytes(each[4:], "little")
        if each[0] == _CALL and number in OPERATIONS:
            first, second = map(bytes.fromhex, OPERATIONS[number])
            code[index] = first
            after[index + 1] = second
    return b"".join(inserted(code, after)) if after else instructions
