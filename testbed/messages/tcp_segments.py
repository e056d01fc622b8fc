"""TCP segments with payload, as a packet capture has them, and the arrival of the bytes in them.

TCP may send bytes again, several messages in one segment, or a message in several. So arrivals are
found by sequence numbers, not by counting segments.
"""

from __future__ import annotations

import socket
import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

SEQUENCES = 1 << 32


class Segment(NamedTuple):
    """A segment with payload, as it came in."""

    time_ns: int
    sequence: int
    """The sequence number of its first byte."""
    length: int
    """Bytes of payload."""


def captured(packets: Iterable[tuple[int, int, bytes]], port: int) -> Iterator[tuple[int, Segment]]:
    """The segments with payload to a port, each with the client's port.

    `packets` have time, IP length, and the packet from its IP header on.
    """
    for time_ns, length, packet in packets:
        at = 40 if packet[0] >> 4 == 6 else (packet[0] & 15) * 4
        protocol = packet[6] if packet[0] >> 4 == 6 else packet[9]
        if protocol == socket.IPPROTO_TCP:
            yield from parsed(time_ns, length - at, packet[at:], port)


def parsed(time_ns: int, length: int, header: bytes, port: int) -> Iterator[tuple[int, Segment]]:
    """The segment of `length` bytes, header included, with the client's port.

    Nothing, if it has no payload or goes to another port.
    """
    client, to, sequence, _, words = struct.unpack_from("!HHIIB", header)
    size = length - (words >> 4) * 4
    if to == port and size:
        yield client, Segment(time_ns, sequence, size)


def arrivals(segments: Iterable[Segment], first: int, ends: Sequence[int]) -> list[int]:
    """The time at which TCP could deliver all bytes before each offset, ns.

    It is the latest first arrival of these bytes; `drld.messages.segments` defines it so. Bytes
    that are in no segment do not count. The stream begins with the sequence number `first`.
    """
    times = array("q", bytes(8 * ends[-1]))
    for it in segments:
        start = (it.sequence - first) % SEQUENCES
        for offset in range(start, min(start + it.length, ends[-1])):
            if not times[offset]:
                times[offset] = it.time_ns
    found, latest_ns, begin = [], 0, 0
    for end in ends:
        latest_ns = max(latest_ns, *times[begin:end])
        begin = end
        found.append(latest_ns)
    return found


def of_equal_messages(segments: Sequence[Segment], size: int) -> list[int]:
    """The times at which the messages of `size` bytes arrived that one client sent, ns.

    The segments begin with the first message, and have nothing else.
    """
    # The numbers of one client are less than half of the circle apart.
    any_one, half = segments[0].sequence, SEQUENCES // 2
    first = any_one + min((it.sequence - any_one + half) % SEQUENCES - half for it in segments)
    total = max((it.sequence - first) % SEQUENCES + it.length for it in segments)
    return arrivals(segments, first, range(size, total + 1, size))
