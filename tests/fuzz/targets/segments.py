"""Segments of a TCP stream in any order, and the headers of a SYN: what a client may send.

The times of the bytes are those of an oracle that knows each byte.
"""

from __future__ import annotations

import struct

from drld.messages.saved_syn import initial_sequence
from drld.messages.segments import Segments, Tally
from tests.fuzz.targets.base import Target
from tests.segments_oracle import Oracle

_STEP = struct.Struct(">BhBH")
"""A kind of event, an offset from the first byte not yet read, a length, a time in ms."""
_ADD, _ARRIVAL = 0, 1
_MS = 1_000_000


def check(data: bytes) -> bool:
    """The input is the headers of a SYN, and a first sequence number and steps of a stream."""
    first = initial_sequence(data)
    assert first is None or 0 <= first < 1 << 32
    if len(data) < 4:
        return first is not None
    first = int.from_bytes(data[:4], "big")
    tally, oracle = Tally(), Oracle()
    segments = Segments(first, tally)
    asked = 0
    steps = data[4 : 4 + (len(data) - 4) // _STEP.size * _STEP.size]
    for what, ahead, length, time_ms in _STEP.iter_unpack(steps):
        offset, time_ns = oracle.asked + ahead, time_ms * _MS
        if what % 2 == _ADD:
            segments.add((first + offset) % (1 << 32), length, time_ns)
            oracle.add(offset, length, time_ns)
        else:
            end = oracle.asked + length
            arrived_ns = segments.arrival(end, time_ns)
            assert arrived_ns == oracle.arrival(end, time_ns)
            asked += arrived_ns <= time_ns  # A later one counts when it is asked for again.
    assert tally.stamped + tally.unstamped == asked
    assert len(segments) <= len(steps)
    return bool(steps)


def seeds() -> list[bytes]:
    ipv4 = bytes([0x45, *bytes(8), 6, *bytes(10)])
    ipv6 = bytes([0x60, *bytes(5), 0, *bytes(33), 6, *bytes(7)])
    tcp = bytes(4) + b"\xff\xff\xff\xf0" + bytes(12)
    stream = (
        (_ADD, 0, 10, 5), (_ADD, 20, 10, 6), (_ARRIVAL, 0, 4, 9), (_ADD, 2, 20, 8),
        (_ADD, -4, 30, 9), (_ARRIVAL, 0, 20, 10), (_ARRIVAL, 0, 3, 300),
    )  # fmt: skip
    return [
        ipv4 + tcp,
        ipv6 + tcp,
        b"\xff\xff\xff\xfa" + b"".join(_STEP.pack(*step) for step in stream),
    ]


TARGET = Target(check, seeds, max_bytes=1500)
