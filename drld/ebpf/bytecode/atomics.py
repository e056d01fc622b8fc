"""Inserts atomic operations that compilers before LLVM 12 do not have (bpf/atomics.h).

With such a compiler the source calls functions with made-up numbers: arguments in r1, r2 and r3,
the result in r0, r1 to r5 lost. Each call becomes two instructions.

Why a rewriter: Ubuntu 22.04's bcc has LLVM 11, and buckets without locks need compare-and-swap.
Inline assembly cannot replace it, as bcc also compiles the source for the host's processor, which
refuses a clobber of r0 (tried with bcc 0.18 and 0.26). It can go when Ubuntu 22.04 is no longer
supported.
"""

from __future__ import annotations

from drld.ebpf.bytecode.loops import BYTES, inserted

_CALL = 0x85

OPERATIONS = {
    # r0 = r2, then atomically: old = *r1; if old equals r0, *r1 = r3; r0 = old
    0x7D000001: ("bf20000000000000", "db310000f1000000"),
    # atomically: old = *r1; *r1 = old + r2; r2 = old. Then r0 = r2
    0x7D000002: ("db21000001000000", "bf20000000000000"),
}
"""The two instructions that replace a call, by the number of the called function."""


def with_atomics(instructions: bytes) -> bytes:
    """The program with atomic operations in place of the calls.

    Raises:
        ValueError: a jump becomes too long for an instruction.
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
