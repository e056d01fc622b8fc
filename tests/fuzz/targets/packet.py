"""Packets: `parse` never raises, what it says is within bounds, and `outline` says the same."""

from __future__ import annotations

import struct

from drld.capture.packet import (
    MAX_JUMBO_PAYLOAD,
    Header,
    ecn_capable,
    marked,
    outline,
    parse,
)
from tests.fuzz.targets.base import Target


def check(data: bytes) -> bool:
    """The first two bytes say where a copy is cut off; the rest is the packet.

    So that every input is a packet, the cut is taken modulo its length.
    """
    if len(data) < 2:
        return check_packet(data)
    data, cut = data[2:], int.from_bytes(data[:2], "big")
    check_copy(data, cut % (len(data) + 1))
    return check_packet(data)


def check_packet(data: bytes) -> bool:
    """Whatever is in there."""
    header = parse(data)
    check_bounds(data, header)
    check_present(data, header)
    plain, length = outline(data)
    if plain is not None:
        assert (header.defect, header.fragment, header.length) == (None, False, length)
    if header.defect is None:
        check_mark(data, header)
    return header.defect is None


def check_mark(data: bytes, header: Header) -> None:
    """A mark changes the two bits and the checksum that covers them, and nothing else."""
    after = marked(data)
    assert ecn_capable(after)
    assert parse(after) == header
    assert marked(after) == after
    if header.family == 4:
        assert checksum_error(after) == checksum_error(data)
        assert after[2:10] + after[12:] == data[2:10] + data[12:]
    else:
        assert after[2:] == data[2:]


def checksum_error(data: bytes) -> int:
    """The error of an IPv4 header's checksum; 0: it is right."""
    header = data[: (data[0] & 15) * 4]
    header += bytes((data[0] & 15) * 4 - len(header))
    words: tuple[int, ...] = struct.unpack(f"!{len(header) // 2}H", header)
    return sum(words) % 0xFFFF


def check_bounds(data: bytes, header: Header) -> None:
    """The result of `parse` is possible for these bytes."""
    flow = header.flow
    assert 0 <= flow.protocol <= 255
    assert len(flow.source) == len(flow.destination) == {0: 4, 4: 4, 6: 16}[header.family]
    assert 0 <= flow.source_port <= 65535
    assert 0 <= flow.destination_port <= 65535
    if header.family == 0:
        assert header.length == len(data)
        assert header.defect is not None
    else:
        assert header.length >= {4: 20, 6: 40}[header.family]
        assert header.length <= MAX_JUMBO_PAYLOAD + 40
    if not header.ports_known:
        assert (flow.source_port, flow.destination_port) == (0, 0)
    if header.later_fragment:
        assert header.fragment
        assert not header.ports_known
    if header.ports_known:
        assert header.defect is None
    if header.defect is not None:
        assert isinstance(header.defect.malformed, bool)


def check_present(data: bytes, header: Header) -> None:
    """A length is believed up to what there is, and what there is more does not count."""
    here = parse(data, len(data))
    assert here.length <= max(len(data), {0: 0, 4: 20, 6: 40}[here.family])
    if header.length <= len(data):
        assert here == header
    for more in (header.length, header.length + 1):
        if more >= len(data):
            assert parse(data, more) == header


def check_copy(data: bytes, size: int) -> None:
    """The fields that a cut copy shows are those of the whole packet."""
    whole, part = parse(data), parse(data[:size])
    if part.family == 0 or whole.defect is not None:
        return
    assert part.flow.source == whole.flow.source
    assert part.flow.destination == whole.flow.destination
    if part.defect is None:
        assert part == whole


_PORTS = struct.pack("!HH", 1000, 443) + bytes(16)
_NEXT_UDP = b"\x11\x00" + bytes(6)


def ipv4(protocol: int, payload: bytes, *, options: bytes = b"", fragment: int = 0) -> bytes:
    """A packet without checksum."""
    words = 5 + len(options) // 4
    length = 4 * words + len(payload)
    return (
        struct.pack("!BBHHHBBH", 0x40 | words, 0, length, 7, fragment, 64, protocol, 0)
        + bytes([10, 0, 0, 1, 10, 9, 2, 1])
        + options
        + payload
    )


def ipv6(protocol: int, payload: bytes) -> bytes:
    """A packet whose extension headers are part of the payload."""
    addresses = bytes.fromhex("fd00" + "00" * 13 + "01" + "fd00" + "00" * 13 + "02")
    return struct.pack("!IHBB", 6 << 28, len(payload), protocol, 64) + addresses + payload


def packets() -> list[bytes]:
    """One of each kind, all of them sound."""
    routing = struct.pack("!BBBB", 17, 2, 4, 0) + bytes(20)
    authentication = struct.pack("!BBH", 17, 4, 0) + bytes(20)
    jumbo = bytes([17, 0, 0xC2, 4]) + struct.pack("!I", 0x10008) + _PORTS
    return [
        *(ipv4(protocol, _PORTS) for protocol in (1, 6, 17, 33, 47, 132, 136)),
        ipv4(6, _PORTS, options=b"\x94\x04\x00\x00" * 10),
        ipv4(17, _PORTS, fragment=0x2000),
        ipv4(17, _PORTS, fragment=0x2001),
        ipv4(17, _PORTS, fragment=0x0100),
        *(ipv6(protocol, _PORTS) for protocol in (6, 17, 33, 58, 132, 136)),
        ipv6(0, _NEXT_UDP + _PORTS),
        ipv6(43, routing + _PORTS),
        ipv6(44, b"\x11\x00\x00\x00" + bytes(4) + _PORTS),
        ipv6(44, b"\x11\x00\x00\x01" + bytes(4) + _PORTS),
        ipv6(44, b"\x11\x00\x01\x00" + bytes(4) + _PORTS),
        ipv6(51, authentication + _PORTS),
        ipv6(60, b"\x3c\x00" + bytes(6) + _NEXT_UDP + _PORTS),
        ipv6(0, b"\x3c\x01" + bytes(14) + b"\x2b\x00" + bytes(6) + _NEXT_UDP + _PORTS),
        ipv6(0, jumbo)[:4] + bytes(2) + ipv6(0, jumbo)[6:],
    ]


def seeds() -> list[bytes]:
    return [struct.pack("!H", 40) + packet for packet in packets()]


TARGET = Target(check, seeds, max_bytes=600)
