"""Captures: pcap and pcapng, read packet by packet from a stream, in constant memory. Pure.

Formats: libpcap's (pcap-savefile(5)) in either byte order, in microseconds or nanoseconds, and
pcapng (draft-ietf-opsawg-pcapng): section, interface, enhanced and obsolete packet blocks. Other
blocks are skipped. Simple packet blocks have no time, so a file with one is refused. A file that
ends inside a packet (a capture that was killed) is refused there, after its whole packets.

Link layers are those of the kernel datapath, and Linux's cooked captures (`tcpdump -i any`). As
there, up to two VLAN tags are skipped, and a frame that is not IP falls under no limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct, error
from typing import IO, NamedTuple

from drld.errors import InputError
from drld.model import NS_PER_S

MAX_PACKET = 1 << 22
"""Bytes of a packet or a block: more than any link carries, so a longer one is damage."""

_PCAP = {b"\xa1\xb2\xc3\xd4": 1000, b"\xa1\xb2\x3c\x4d": 1}
"""Nanoseconds of a unit of the fraction of a second, by magic number."""
_SECTION, _ORDER = b"\x0a\x0d\x0d\x0a", 0x1A2B3C4D
_INTERFACE, _OBSOLETE, _SIMPLE, _ENHANCED = 1, 2, 3, 6
_RESOLUTION, _OFFSET = 9, 14
_IPV4, _IPV6 = b"\x08\x00", b"\x86\xdd"
_TAGS = (b"\x81\x00", b"\x88\xa8")
_ETHERNET, _SLL, _SLL2, _PPP_LINK, _PPP_HDLC = 1, 113, 276, 9, 50
"""Link types that have the type of the protocol: Ethernet, Linux cooked (two versions), PPP."""
_MOST_NS = 1 << 63
"""End of time: the year 2262."""
_CUT_OFF = "the capture ends inside a packet"
_TYPE_AT = {_ETHERNET: 12, _SLL: 14, _SLL2: 0, _PPP_LINK: 2, _PPP_HDLC: 2}
"""The offset of the protocol type, by link type."""
_PPP = {b"\x00\x21": _IPV4, b"\x00\x57": _IPV6}
_BARE = {0: 4, 108: 4, 12: 0, 14: 0, 101: 0, 228: 0, 229: 0}
"""Bytes before the IP header, by link type, where no field has the protocol: loopback, raw IP."""


class Captured(NamedTuple):
    """One packet of a capture."""

    time_ns: int
    """Unix time of the packet, ns."""
    data: bytes
    """The captured bytes, from the IP header on; empty if the frame is not IP."""
    size: int
    """Length of the whole packet from the IP header on, with Ethernet's padding, bytes. It is more
    than that of `data` if the capture has only the beginning."""


@dataclass(frozen=True, slots=True)
class _Interface:
    """An interface of a pcapng section."""

    link: int
    per_second: int = 1_000_000
    """Resolution of its times: units a second."""
    offset_ns: int = 0
    """Added to its times."""


def packets(stream: IO[bytes]) -> Iterator[Captured]:
    """The packets of a capture, in its order.

    Raises:
        InputError: the stream is no capture, or is damaged after the packets up to here.
    """
    magic = _exactly(stream, 4)
    if magic == _SECTION:
        return _pcapng(stream)
    for order, key in (("<", magic[::-1]), (">", magic)):
        if key in _PCAP:
            return _pcap(stream, order, _PCAP[key])
    raise InputError("must be a capture (pcap or pcapng)")


def _exactly(stream: IO[bytes], size: int) -> bytes:
    """The next `size` bytes; fewer at the end of the file."""
    data = stream.read(size)
    while len(data) < size and (more := stream.read(size - len(data))):
        data += more
    return data


def _pcap(stream: IO[bytes], order: str, unit_ns: int) -> Iterator[Captured]:
    head = _exactly(stream, 20)
    if len(head) < 20:
        raise InputError("the capture ends in its header")
    link = Struct(order + "I").unpack_from(head, 16)[0] & 0xFFFF
    _known(link)
    record = Struct(order + "IIII")
    while head := _exactly(stream, record.size):
        if len(head) < record.size:
            raise InputError(_CUT_OFF)
        seconds, fraction, captured, size = record.unpack(head)
        if captured > MAX_PACKET:
            raise InputError(f"the capture is damaged: a packet of {captured} bytes")
        data = _exactly(stream, captured)
        if len(data) < captured:
            raise InputError(_CUT_OFF)
        yield _packet(link, seconds * NS_PER_S + fraction * unit_ns, data, size)


def _pcapng(stream: IO[bytes]) -> Iterator[Captured]:
    order, interfaces = "<", list[_Interface]()
    kind_bytes = _SECTION
    while kind_bytes:
        if kind_bytes == _SECTION:
            size_bytes, magic = _exactly(stream, 4), _exactly(stream, 4)
            if len(magic) < 4:
                raise InputError(_CUT_OFF)
            order = "<" if Struct("<I").unpack(magic)[0] == _ORDER else ">"
            if Struct(order + "I").unpack(magic)[0] != _ORDER:
                raise InputError("the capture is damaged: a section of no byte order")
            interfaces, done = [], 12
        else:
            size_bytes, done = _exactly(stream, 4), 8
            if len(size_bytes) < 4:
                raise InputError(_CUT_OFF)
        (size,) = Struct(order + "I").unpack(size_bytes)
        if not done + 4 <= size <= MAX_PACKET:
            raise InputError(f"the capture is damaged: a block of {size} bytes")
        body = _exactly(stream, size - done)
        if len(body) < size - done:
            raise InputError(_CUT_OFF)
        (kind,) = Struct(order + "I").unpack(kind_bytes)
        try:
            if kind == _INTERFACE:
                interfaces.append(_interface(body[:-4], order))
            elif kind in (_ENHANCED, _OBSOLETE):
                yield _block(body, order, kind, interfaces)
            elif kind == _SIMPLE:
                raise InputError("the capture has packets without a time")
        except (error, IndexError):
            raise InputError(f"the capture is damaged: a block of type {kind}") from None
        kind_bytes = _exactly(stream, 4)


def _interface(body: bytes, order: str) -> _Interface:
    """An interface description block."""
    option = Struct(order + "HH")
    link, _ = option.unpack_from(body)
    _known(link)
    per_second, offset_ns, at = 1_000_000, 0, 8
    while at + 4 <= len(body):
        code, size = option.unpack_from(body, at)
        if code == _RESOLUTION:
            power = body[at + 4]
            per_second = 2 ** (power & 0x7F) if power & 0x80 else 10**power
        elif code == _OFFSET:
            offset_ns = Struct(order + "q").unpack_from(body, at + 4)[0] * NS_PER_S
        at += 4 + (size + 3 & ~3)
    return _Interface(link, per_second, offset_ns)


def _block(body: bytes, order: str, kind: int, interfaces: list[_Interface]) -> Captured:
    """An enhanced or an obsolete packet block."""
    fields = Struct(order + ("IIIII" if kind == _ENHANCED else "HxxIIII"))
    number, high, low, captured, size = fields.unpack_from(body)
    if captured > len(body) - fields.size:
        raise InputError("the capture is damaged: a packet is longer than its block")
    interface = interfaces[number]
    time_ns = (high << 32 | low) * NS_PER_S // interface.per_second + interface.offset_ns
    if not 0 <= time_ns < _MOST_NS:
        raise InputError(f"the capture is damaged: a time of {time_ns // NS_PER_S} s")
    return _packet(interface.link, time_ns, body[fields.size : fields.size + captured], size)


def _known(link: int) -> None:
    if link not in _TYPE_AT and link not in _BARE:
        read = "Ethernet, Linux cooked, PPP, loopback or raw IP"
        raise InputError(f"the capture has link type {link}: must be {read}")


def _packet(link: int, time_ns: int, frame: bytes, size: int) -> Captured:
    start = _start(link, frame)
    if start is None:
        return Captured(time_ns, b"", 0)
    return Captured(time_ns, frame[start:], max(size, len(frame)) - start)


def _start(link: int, frame: bytes) -> int | None:
    """The offset of the IP header; None: the frame has none."""
    if link in _BARE:
        start = _BARE[link]
        first = frame[start] >> 4 if len(frame) > start else 0
        return start if first in (4, 6) else None
    at = _TYPE_AT[link]
    if link in (_PPP_LINK, _PPP_HDLC):
        # PPP; the address and control bytes may be left out.
        at = 2 if frame[:2] == b"\xff\x03" else 0
        return at + 2 if frame[at : at + 2] in _PPP else None
    start = {_SLL: 16, _SLL2: 20}.get(link, at + 2)
    for _ in range(2):
        if frame[at : at + 2] not in _TAGS:
            break
        at, start = start + 2, start + 4
    return start if frame[at : at + 2] in (_IPV4, _IPV6) else None
