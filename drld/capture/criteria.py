"""Why a packet does not fall under a limit: the first criterion of its `match` that fails.

`Matcher` decides. This says why it did, in the order of docs/matching.md, and is only for people.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network, ip_address

from drld.capture.notation import Packet, protocol_name
from drld.capture.packet import Defect, Header
from drld.capture.patterns import covers
from drld.capture.spec import Match
from drld.police.direction import Direction

_TUNNELS = {4: "IPIP", 41: "IPv6", 47: "GRE", 50: "ESP"}
_UDP_TUNNELS = {4789: "VXLAN", 6081: "Geneve", 51820: "WireGuard"}
"""Registered ports of tunnels over UDP; WireGuard's is its usual one."""


def hook(match: Match, packet: Packet) -> tuple[Direction, str] | None:
    """The hook at which the packet meets limits with this `match`; None: it does not cross one."""
    if not packet.crosses:
        return match.direction, match.interface
    met = (at for at in packet.crosses if at[0] is match.direction)
    return next((at for at in met if covers(match.interface, at[1])), None)


def first_miss(match: Match, packet: Packet) -> str | None:
    """The first criterion that fails, and why; None: all hold."""
    return next(_misses(match, packet), None)


def _misses(match: Match, packet: Packet) -> Iterator[str]:
    header, flow = packet.header, packet.header.flow
    if hook(match, packet) is None:
        crossed = ", ".join(f"{way.value} {name}" for way, name in packet.crosses)
        yield f"{match.direction.value} {match.interface}: the packet crosses {crossed}"
    for key, prefix, packed in (
        ("source", match.source, flow.source),
        ("destination", match.destination, flow.destination),
    ):
        if prefix is not None and (why := _outside(prefix, packed, header)):
            yield f"{key}: {why}"
    if match.protocol is not None and (header.family == 0 or flow.protocol != match.protocol):
        found = protocol_name(flow.protocol) if header.family else "a packet without a protocol"
        yield f"protocol: {found} is not {protocol_name(match.protocol)}"
    for key, ranges, port in (
        ("source_port", match.source_ports, flow.source_port),
        ("destination_port", match.destination_ports, flow.destination_port),
    ):
        if not ranges:
            continue
        if not header.ports_known:
            yield f"{key}: {_portless(header)}"
        elif not any(low <= port <= high for low, high in ranges):
            wanted = ", ".join(f"{low}-{high}" if low < high else f"{low}" for low, high in ranges)
            yield f"{key}: {port} is not in {wanted}"
    if match.mark is not None:
        value, mask = match.mark
        if packet.mark & mask != value:
            yield f"mark: {packet.mark:#x} & {mask:#x} is {packet.mark & mask:#x}, not {value:#x}"


def _outside(prefix: IPv4Network | IPv6Network, packed: bytes, header: Header) -> str | None:
    if header.family == 0:
        return f"the addresses are unknown ({_why(header.defect)})"
    if header.family != prefix.version:
        return f"the packet is IPv{header.family}"
    address = ip_address(packed)
    return None if address in prefix else f"{address} is not in {prefix}"


def _portless(header: Header) -> str:
    if header.defect is not None:
        return f"the ports are unknown ({_why(header.defect)})"
    if header.later_fragment:
        return "a later fragment has no ports"
    return f"{protocol_name(header.flow.protocol)} has no ports"


def _why(defect: Defect | None) -> str:
    return defect.value if defect is not None else "no IP packet"


def remarks(packet: Packet) -> list[str]:
    """How datapaths read a packet that is not plain: a sentence each (docs/matching.md)."""
    header, found = packet.header, []
    if header.defect is not None:
        kind = "malformed" if header.defect.malformed else "truncated"
        found.append(f"It counts as {kind}: {header.defect.value}.")
    if header.later_fragment:
        found.append("It is a later fragment: it has no ports, so no port criterion holds.")
    elif header.fragment:
        found.append("It is a first fragment: it matches like a whole packet.")
    flow = header.flow
    tunnel = _TUNNELS.get(flow.protocol) if header.family else None
    if flow.protocol == 17 and header.ports_known:
        tunnel = _UDP_TUNNELS.get(flow.destination_port)
    if tunnel:
        found.append(f"What the tunnel ({tunnel}) carries is not read: the outer headers count.")
    return found
