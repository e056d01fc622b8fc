"""A BPF program at the exit of a lane, held by a process of the testbed.

It is drld's own program, through the datapath's class but without a daemon's ticks, so that the
enforcement is known and constant. Or it is a program for comparison. It is empty, or only looks an
address up in a hash table or in the kernel's longest-prefix trie.
"""

from __future__ import annotations

import ipaddress
import itertools
import select
import struct
import sys
import time
from pathlib import Path
from typing import Any

from drld import config
from drld.capture.kernel.datapath import KernelDatapath
from drld.ebpf import bpf
from drld.ebpf.attachment import attachment
from drld.ebpf.bpf import Code, Map, Program
from drld.ebpf.hook import device
from drld.model import Enforcement
from drld.police.direction import Direction
from testbed import child

_LPM_TRIE = 11
_PREFIX_BITS = 32
_BEAT_S = 1.0
_LOAD_WORD, _LOAD_FROM, _STORE, _STORE_NUMBER = 0x18, 0x61, 0x63, 0x62
_SET, _COPY, _ADD, _JUMP_ABOVE, _JUMP_ZERO, _CALL, _EXIT = 0xB7, 0xBF, 0x07, 0x2D, 0x15, 0x85, 0x95
_DATA, _DATA_END = 76, 80
"""Offsets in struct __sk_buff."""
_DESTINATION, _HEADERS = 30, 34
"""Offset of an IPv4 packet's destination in a frame, and of the end of its header."""
_CONTINUE = -1
_MAP_LOOKUP = 1


def _instruction(code: int, to: int = 0, by: int = 0, offset: int = 0, number: int = 0) -> bytes:
    return struct.pack("<BBhi", code, to | by << 4, offset, number)


_END = [_instruction(_SET, 0, number=_CONTINUE), _instruction(_EXIT)]


def _lookup(prefix: bool) -> Code:
    """Look the destination up, and pass the packet in any case."""
    key = -8 if prefix else -4
    body = [
        _instruction(_LOAD_FROM, 2, 1, _DATA),
        _instruction(_LOAD_FROM, 3, 1, _DATA_END),
        _instruction(_COPY, 4, 2),
        _instruction(_ADD, 4, number=_HEADERS),
        _instruction(_JUMP_ABOVE, 4, 3, 10 if prefix else 9),
        _instruction(_LOAD_FROM, 4, 2, _DESTINATION),
        _instruction(_STORE, 10, 4, -4),
        *([_instruction(_STORE_NUMBER, 10, 0, -8, _PREFIX_BITS)] if prefix else []),
        _instruction(_COPY, 2, 10),
        _instruction(_ADD, 2, number=key),
        _instruction(_LOAD_WORD, 1, 1) + _instruction(0),
        _instruction(_CALL, number=_MAP_LOOKUP),
        # The value is read, as in a real lookup.
        _instruction(_JUMP_ZERO, 0, offset=1),
        _instruction(_LOAD_FROM, 0, 0),
    ]
    before = next(index for index, each in enumerate(body) if each[0] == _LOAD_WORD)
    return Code(b"".join([*body, *_END]), {before: "addresses"})


def _addresses(prefix: bool, first: str, count: int) -> Map:
    """`count` addresses from `first` on, each with its number."""
    head = struct.pack("=I", _PREFIX_BITS) if prefix else b""
    start = int(ipaddress.IPv4Address(first))
    content = {
        head + struct.pack(">I", start + index): struct.pack("=I", index) for index in range(count)
    }
    kind, flags = (_LPM_TRIE, bpf.NO_PREALLOC) if prefix else (bpf.HASH, 0)
    made = Map.create(kind, "addresses", (len(head) + 4, 4), count, flags)
    for key, value in content.items():
        made.update(key, value)
    return made


def _attach_drld(job: dict[str, Any]) -> KernelDatapath:
    """drld's program, with the limits of a configuration, and records for them in turn."""
    spec = config.load(Path(job["config"]))
    datapath = KernelDatapath(spec.name)
    records = itertools.cycle(Enforcement(**record) for record in job["records"])
    datapath.attach(list(zip(spec.limits, records, strict=False)), time.monotonic_ns())
    return datapath


def _attach_other(job: dict[str, Any]) -> None:
    kind: str = job["kind"]
    code, maps = Code(b"".join(_END), {}), {}
    if kind != "empty":
        code = _lookup(kind == "trie")
        maps = {"addresses": _addresses(kind == "trie", job["first"], job["count"])}
    place = attachment("bench")
    program = Program.load(place.program_name(kind), code, maps)
    place.put(device(job["device"]).index, Direction.OUT, program, kind)


def work() -> None:
    """Attach the job's program, and stay."""
    job = child.receive()
    datapath = None
    if job["kind"] == "drld":
        datapath = _attach_drld(job)
    else:
        _attach_other(job)
    child.send(ready=True)
    while not select.select([sys.stdin], [], [], _BEAT_S)[0]:
        if datapath is not None:
            datapath.flush(time.monotonic_ns())


if __name__ == "__main__":
    child.main(work)
