"""`parse` takes any bytes: it never raises, and what it says is within bounds.

Where scapy can make sense of a mutated packet, both must make the same sense of it.
"""

from __future__ import annotations

import ipaddress
import struct
from random import Random

from hypothesis import example, given
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import (
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
)
from scapy.packet import Packet, Raw

from drld.capture.packet import parse

from .frames import packet_of, random_frame
from .targets.packet import check_copy, check_packet

PLAIN: list[Packet] = [
    IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=1, dport=2) / Raw(bytes(20)),
    IP(src="10.0.0.1", dst="10.0.0.2", options=[IPOption_NOP()] * 8) / UDP() / Raw(bytes(20)),
    IP(src="10.0.0.1", dst="10.0.0.2", frag=100) / ICMP() / Raw(bytes(20)),
    IPv6(src="fd00::1", dst="fd00::2") / UDP(sport=1, dport=2) / Raw(bytes(20)),
    IPv6(src="fd00::1", dst="fd00::2")
    / IPv6ExtHdrHopByHop()
    / IPv6ExtHdrDestOpt()
    / IPv6ExtHdrRouting(addresses=["fd00::3"])
    / IPv6ExtHdrFragment(m=1, id=7)
    / TCP(sport=1, dport=2)
    / Raw(bytes(20)),
]
PACKETS = [bytes(packet) for packet in PLAIN]
JUMBO = struct.pack("!IHBB", 6 << 28, 0, 0, 64) + bytes(32) + b"\x06\x00\xc2\x04\x00\x01\x86\xa0"


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid packet with some bytes changed, cut off, or added."""
    data = bytearray(draw(st.sampled_from(PACKETS)))
    for position, value in draw(
        st.lists(st.tuples(st.integers(0, len(data) - 1), st.integers(0, 255)), max_size=6)
    ):
        data[position] = value
    end = draw(st.integers(0, len(data)))
    return bytes(data[:end] if draw(st.booleans()) else data + draw(st.binary(max_size=40)))


@given(st.binary(max_size=300))
@example(b"")
@example(JUMBO)
@example(b"\x45" + bytes(19))
@example(b"\x60" + bytes(39))
def test_any_bytes_are_parsed_within_bounds(data: bytes) -> None:
    check_packet(data)


@given(st.sampled_from([0x45, 0x4F, 0x60, 0x6F]), st.binary(max_size=300))
def test_any_bytes_with_a_version_are_parsed_within_bounds(first: int, data: bytes) -> None:
    data = bytes([first]) + data
    check_packet(data)


@given(mutated())
def test_mutated_packets_are_parsed_within_bounds(data: bytes) -> None:
    check_packet(data)


@given(mutated(), st.integers(0, 300))
def test_a_shorter_copy_of_a_packet_agrees_with_the_whole(data: bytes, size: int) -> None:
    check_copy(data, size)


@given(mutated())
def test_scapy_reads_the_same_headers(data: bytes) -> None:
    agree_with_scapy(data)


@given(st.randoms(use_true_random=False))
def test_scapy_reads_the_same_headers_of_random_frames(rng: Random) -> None:
    packet = packet_of(random_frame(rng))
    if packet is not None:
        check_packet(packet)
        agree_with_scapy(packet)


def agree_with_scapy(data: bytes) -> None:
    """A third opinion of whatever `parse` finds no defect in."""
    header = parse(data)
    if header.defect is not None:
        return
    packet: Packet = IP(data) if header.family == 4 else IPv6(data)
    ip = packet[IP] if header.family == 4 else packet[IPv6]
    flow = header.flow
    assert ipaddress.ip_address(ip.src).packed == flow.source
    assert ipaddress.ip_address(ip.dst).packed == flow.destination
    if header.family == 4:
        assert (ip.len, ip.proto) == (header.length, flow.protocol)
        assert header.later_fragment is (ip.frag > 0)
        assert header.fragment is (ip.frag > 0 or bool(ip.flags.MF))
    elif ip.plen:
        assert ip.plen + 40 == header.length
    routing = packet.getlayer(IPv6ExtHdrRouting)
    if routing is not None and routing.len % 2:
        # Of an odd length (RFC 8200, 4.4: units of 8 bytes), scapy reads whole addresses only.
        return
    if header.ports_known:
        for kind in (TCP, UDP):
            # The first transport header: scapy may see another inside what it takes for payload.
            if kind in packet and {TCP: 6, UDP: 17}[kind] == flow.protocol:
                found = packet[kind]
                assert (found.sport, found.dport) == (flow.source_port, flow.destination_port)
