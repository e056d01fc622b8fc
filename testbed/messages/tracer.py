"""Takes down TCP segments where `tcp_v4_rcv` or `tcp_v6_rcv` begins, with a BPF program (fentry).

SRTM 2021 (section V-B) takes its times there. The socket filter (bpf/segments.c) runs later in the
same functions: after the kernel has found the connection and applied its policy. This module
measures how much later.

The program reads two fields of `struct sk_buff`. Their offsets differ between kernels, and the
kernel describes them (BTF, Documentation/bpf/btf.rst). So the program is assembled here, without a
compiler. Some kernels refuse to have their functions traced.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from drld.ebpf import bpf
from drld.ebpf.bpf import Code, Program
from drld.ebpf.ring import HEADER, Ring
from drld.errors import DatapathError

FUNCTIONS = {4: "tcp_v4_rcv", 6: "tcp_v6_rcv"}
"""The traced function, by the version of IP."""

_RECORD = struct.Struct(f"={HEADER}QI20s")
"""Time (monotonic, ns), bytes from the TCP header on, and the TCP header."""
_MAP = "traced"


class Tracer:
    """A record of the TCP segments of one version of IP that reach this host."""

    def __init__(self, version: int, segments: int) -> None:
        """Record at most `segments` segments, from now on.

        Raises:
            DatapathError: the kernel refuses.
        """
        with ExitStack() as opened:
            self._ring = Ring(_MAP, _RECORD, 1 << (segments * _RECORD.size).bit_length())
            opened.callback(self._ring.close)
            layout = _layout(FUNCTIONS[version])
            program = Program.load(
                _MAP,
                Code(_instructions(layout), {_MAP_AT: _MAP}),
                {_MAP: self._ring.map},
                kind=bpf.TRACING,
                function=layout.function,
            )
            opened.callback(program.close)
            try:
                opened.callback(os.close, bpf.trace(program))
            except OSError as error:
                raise DatapathError(f"the kernel refuses the trace: {error}") from error
            self._open = opened.pop_all()

    def segments(self) -> Iterator[tuple[int, int, bytes]]:
        """Time, ns, bytes from the TCP header on, and TCP header of each segment; each once."""
        return self._ring.take()

    def close(self) -> None:
        """Stop, and forget the segments."""
        self._open.close()


class _Layout(NamedTuple):
    """The type information of the running kernel."""

    function: int
    """BTF number of the traced function."""
    length: int
    """Offset of `len` in `struct sk_buff`."""
    data: int
    """Offset of `data`, a pointer; it points to the TCP header when the function begins."""


_BTF = Path("/sys/kernel/btf/vmlinux")
_BTF_HEADER = struct.Struct("=HBBIIIII")
_WORDS = struct.Struct("=III")
_STRUCT, _FUNCTION = 4, 12
_MORE_BYTES = {1: 4, 3: 12, 14: 4, 17: 4}
"""Bytes of a type after its first 12, for an integer, an array, a variable or a tag."""
_ELEMENT_BYTES = {_STRUCT: 12, 5: 12, 6: 8, 13: 8, 15: 12, 19: 12}
"""Bytes of each member, value or parameter of a type, by the type's kind."""


def _layout(function: str) -> _Layout:
    """Read the kernel's description of its types.

    Raises:
        DatapathError: it has none, or none of the function.
    """
    try:
        described = _BTF.read_bytes()
    except OSError as error:
        raise DatapathError(f"the kernel does not describe its types: {error}") from error
    *_, head, at, size, names_at, names_size = _BTF_HEADER.unpack_from(described)
    at, names_at = head + at, head + names_at
    names = described[names_at : names_at + names_size]
    wanted = {(_FUNCTION, _name_at(names, function)), (_STRUCT, _name_at(names, "sk_buff"))}
    found, number, end = {}, 0, at + size
    while at < end:
        number += 1  # 0 is void
        name, kind_and_count, _ = _WORDS.unpack_from(described, at)
        kind, count = kind_and_count >> 24 & 31, kind_and_count & 0xFFFF
        at += _WORDS.size + _MORE_BYTES.get(kind, 0)
        if (kind, name) in wanted:
            found[kind] = number, at, count
        at += count * _ELEMENT_BYTES.get(kind, 0)
    _, at, count = found[_STRUCT]
    offsets = {}
    for member in range(count):
        name, _, bits = _WORDS.unpack_from(described, at + member * _WORDS.size)
        offsets[name] = bits // 8
    length, data = (offsets[_name_at(names, field)] for field in ("len", "data"))
    return _Layout(found[_FUNCTION][0], length, data)


def _name_at(names: bytes, name: str) -> int:
    at = names.find(b"\0" + name.encode() + b"\0") + 1
    if not at:
        raise DatapathError(f"the kernel does not describe {name}")
    return at


_LOAD_4, _LOAD_8, _STORE_4, _STORE_8, _LOAD_MAP = 0x61, 0x79, 0x63, 0x7B, 0x18
_SET, _COPY, _ADD, _CALL, _EXIT = 0xB7, 0xBF, 0x07, 0x85, 0x95
_KTIME_GET_NS, _PROBE_READ_KERNEL, _RINGBUF_OUTPUT = 5, 113, 130
_PSEUDO_MAP_FD, _NO_WAKEUP = 1, 1
_MAP_AT = 11
"""The instruction that refers to the map."""


def _instructions(layout: _Layout) -> bytes:
    """A record for each call of a function whose first argument is a socket buffer."""
    skb, length, data, stack = 6, 7, 8, 10
    lines = (
        (_LOAD_8, skb, 1, 0, 0),
        (_LOAD_4, length, skb, layout.length, 0),
        (_LOAD_8, data, skb, layout.data, 0),
        (_CALL, 0, 0, 0, _KTIME_GET_NS),
        (_STORE_8, stack, 0, -32, 0),
        (_STORE_4, stack, length, -24, 0),
        (_COPY, 1, stack, 0, 0),
        (_ADD, 1, 0, 0, -20),
        (_SET, 2, 0, 0, 20),
        (_COPY, 3, data, 0, 0),
        (_CALL, 0, 0, 0, _PROBE_READ_KERNEL),
        (_LOAD_MAP, 1, _PSEUDO_MAP_FD, 0, 0),
        (0, 0, 0, 0, 0),
        (_COPY, 2, stack, 0, 0),
        (_ADD, 2, 0, 0, -32),
        (_SET, 3, 0, 0, 32),
        (_SET, 4, 0, 0, _NO_WAKEUP),
        (_CALL, 0, 0, 0, _RINGBUF_OUTPUT),
        (_SET, 0, 0, 0, 0),
        (_EXIT, 0, 0, 0, 0),
    )
    return b"".join(
        struct.pack("=BBhi", opcode, source << 4 | target, offset, value)
        for opcode, target, source, offset, value in lines
    )
