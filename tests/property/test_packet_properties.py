"""`parse` reads packets that scapy built."""

from __future__ import annotations

import ipaddress

from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import (
    ICMPv6EchoRequest,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
)
from scapy.layers.ipsec import ESP
from scapy.layers.l2 import GRE
from scapy.packet import Packet, Raw

from drld.capture.packet import COPY_BYTES, MAX_EXTENSIONS, Header, parse

PORT = st.integers(0, 65535)
SIZE = st.integers(0, 400)


@st.composite
def transports(draw: st.DrawFn, icmp: Packet) -> tuple[Packet, int, tuple[int, int] | None]:
    """A transport header, its protocol number, and its ports if it has any."""
    number = 1 if isinstance(icmp, ICMP) else 58
    ports = (draw(PORT), draw(PORT))
    return draw(
        st.sampled_from(
            [
                (TCP(sport=ports[0], dport=ports[1]), 6, ports),
                (UDP(sport=ports[0], dport=ports[1]), 17, ports),
                (icmp, number, None),
                (GRE(), 47, None),
                (ESP(spi=1, seq=2, data=b"secret"), 50, None),
            ]
        )
    )


def check(
    header: Header, packet: Packet, number: int, ports: tuple[int, int] | None, family: int
) -> None:
    ip = packet[IP] if family == 4 else packet[IPv6]
    assert header.defect is None
    assert header.family == family
    assert header.length == len(bytes(packet))
    assert header.flow.protocol == number
    assert header.flow.source == ipaddress.ip_address(ip.src).packed
    assert header.flow.destination == ipaddress.ip_address(ip.dst).packed
    assert header.ports_known is (ports is not None)
    assert (header.flow.source_port, header.flow.destination_port) == (ports or (0, 0))


@given(
    source=st.ip_addresses(v=4),
    destination=st.ip_addresses(v=4),
    options=st.integers(0, 40),
    transport=transports(ICMP()),
    size=SIZE,
    more=st.booleans(),
)
def test_headers_of_ipv4_are_parsed_as_they_were_written(
    *,
    source: ipaddress.IPv4Address,
    destination: ipaddress.IPv4Address,
    options: int,
    transport: tuple[Packet, int, tuple[int, int] | None],
    size: int,
    more: bool,
) -> None:
    upper, number, ports = transport
    packet: Packet = IP(
        src=str(source),
        dst=str(destination),
        flags="MF" if more else 0,
        options=[IPOption_NOP()] * options,
        proto=number,
    )
    packet = packet / upper / Raw(bytes(size))
    header = parse(bytes(packet)[:COPY_BYTES])
    check(header, packet, number, ports, 4)
    assert header.fragment is more
    assert not header.later_fragment


@st.composite
def extensions(draw: st.DrawFn) -> list[Packet]:
    kinds: list[Packet] = [
        IPv6ExtHdrDestOpt(),
        IPv6ExtHdrRouting(addresses=["fd00::1"]),
        IPv6ExtHdrFragment(id=7),
    ]
    rest = draw(st.lists(st.sampled_from(kinds), max_size=MAX_EXTENSIONS - 1))
    return [IPv6ExtHdrHopByHop(), *rest] if draw(st.booleans()) else rest


@given(
    source=st.ip_addresses(v=6),
    destination=st.ip_addresses(v=6),
    chain=extensions(),
    transport=transports(ICMPv6EchoRequest()),
    size=SIZE,
)
def test_headers_of_ipv6_are_parsed_as_they_were_written(
    *,
    source: ipaddress.IPv6Address,
    destination: ipaddress.IPv6Address,
    chain: list[Packet],
    transport: tuple[Packet, int, tuple[int, int] | None],
    size: int,
) -> None:
    upper, number, ports = transport
    packet: Packet = IPv6(src=str(source), dst=str(destination))
    for part in [*chain, upper, Raw(bytes(size))]:
        packet = packet / part
    header = parse(bytes(packet)[:COPY_BYTES])
    check(header, packet, number, ports, 6)
    assert not header.fragment
