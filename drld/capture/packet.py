"""Parser of IP headers: flow, length and fragment, from untrusted bytes.

`parse` reads the first `COPY_BYTES` of a packet and never raises. If a packet contradicts itself,
or its headers end too early, `parse` returns the fields that it could read, and a `Defect`.
docs/matching.md says how limits treat such a packet.

- The length is the IP packet's, in bytes, and at most the bytes present. It is the total length
  (RFC 791), the payload length + 40 (RFC 8200), or the jumbo payload option + 40 (RFC 2675). If the
  field contradicts the headers, the length is the number of copied bytes.
- The parser follows up to `MAX_EXTENSIONS` IPv6 extension headers: hop-by-hop options, routing,
  fragment, destination options and AH. If it cannot reach the end of the chain, the protocol is the
  number of the extension header where it stopped.
- Ports are those of TCP, UDP, UDP-Lite, SCTP and DCCP, from a whole packet or a first fragment.
  An atomic fragment (RFC 6946: offset 0, none follows) is a whole packet.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable
from struct import Struct
from typing import NamedTuple

from drld.model import FlowKey

COPY_BYTES = 256
"""Bytes of each packet that a datapath copies. The longest IPv4 header with ports takes 64 bytes.
IPv6 with the extension headers found in practice takes less than 256."""

MAX_EXTENSIONS = 8
"""IPv6 extension headers followed in one packet."""

PORT_PROTOCOLS = frozenset({6, 17, 33, 132, 136})
"""TCP, UDP, DCCP, SCTP, UDP-Lite: two 16-bit ports come first."""

_HOP_BY_HOP, _ROUTING, _FRAGMENT, _AUTHENTICATION, _DESTINATION = 0, 43, 44, 51, 60
_EXTENSIONS = frozenset({_HOP_BY_HOP, _ROUTING, _FRAGMENT, _AUTHENTICATION, _DESTINATION})

_IPV4 = Struct("!BxHxxHxBxx4s4s")  # version and IHL, length, fragment, protocol, addresses
_IPV6 = Struct("!4xHBx16s16s")  # payload length, next header, addresses
_PORTS = Struct("!HH")
_IPV4_OUTLINE = Struct("!BxHxxHxBxx12s")  # as _IPV4, with addresses and ports in one field
_FRAGMENT_FIELD = Struct("!2xH")
_JUMBO_LENGTH = Struct("!I")
_CHECKSUM = Struct("!H")

_CE_IPV4, _CE_IPV6 = 0x03, 0x30
"""The two bits of ECN in the second byte of a header; both: congestion experienced."""

_IPV4_MORE_OR_OFFSET = 0x3FFF
_IPV4_OFFSET = 0x1FFF
_IPV6_MORE_OR_OFFSET = 0xFFF9
_IPV6_OFFSET = 0xFFF8
_PAD1, _JUMBO_PAYLOAD = 0x00, 0xC2
_MIN_JUMBO_PAYLOAD = 0x10000
MAX_JUMBO_PAYLOAD = 0x80000
"""Linux takes no larger packet (`GSO_MAX_SIZE`). Without this bound a hundred bytes could count as
4 GB."""


class Defect(enum.Enum):
    """Why the parser did not read all headers."""

    VERSION = "neither an IPv4 nor an IPv6 packet"
    HEADER_LENGTH = "IPv4 header length below 20 bytes"
    LENGTH = "the length field contradicts the headers"
    SHORT = "the packet ends inside its headers"
    COPY = "the bytes copied end inside the headers"
    EXTENSIONS = "more extension headers than are followed"

    @property
    def malformed(self) -> bool:
        """Whether the packet itself is at fault; if not, the parser read too little of it."""
        return self not in (Defect.COPY, Defect.EXTENSIONS)


class Header(NamedTuple):
    """The fields that the parser read of one packet."""

    flow: FlowKey
    length: int
    """Bytes of the IP packet."""
    family: int
    """4 or 6; 0: the addresses are unknown, and `flow` has no meaning."""
    ports_known: bool
    fragment: bool
    """Whether the packet is a part of a fragmented datagram."""
    later_fragment: bool
    """Whether it is a part other than the first."""
    defect: Defect | None


_ANY = 1 << 32
"""More bytes than any length field can state."""
NO_FLOW = FlowKey(255, bytes(4), bytes(4), 0, 0)
"""The flow of packets whose addresses are unknown."""


def parse(data: bytes, present: int = _ANY) -> Header:
    """Read the first bytes of a packet, from the IP header on; never raises.

    `present` is the number of bytes that the packet has, at least those in `data`. It can be left
    out for packets from netfilter, as the kernel has compared their length field with it.
    """
    version = data[0] >> 4 if data else 0
    if version == 4:
        return _ipv4(data, present)
    if version == 6:
        return _ipv6(data, present)
    return Header(NO_FLOW, len(data), 0, False, False, False, Defect.VERSION)


def outline(data: bytes) -> tuple[Hashable, int]:
    """The outline of a plain packet, a key of a cache of `parse`, and the packet's length.

    A plain packet is no fragment, has no IPv4 options or IPv6 extension headers, and is long enough
    for ports, by its length field and in the copied bytes. Nearly all packets are plain. For two
    packets with one outline, `parse` returns headers without defect that differ only in length, and
    their lengths are those returned here. It takes a quarter of the time of `parse`.

    Returns:
        The outline, or None if the packet is not plain; the length in bytes of a plain packet.
    """
    if len(data) < 24:
        return None, 0
    first, length, fragment, protocol, rest = _IPV4_OUTLINE.unpack_from(data)
    if first == 0x45:
        if length >= 24 and not fragment & _IPV4_MORE_OR_OFFSET:
            return (protocol, rest), length
    elif first >> 4 == 6 and len(data) >= 44 and data[6] not in _EXTENSIONS:
        length = (data[4] << 8 | data[5]) + 40
        if length >= 44:
            return data[6:44], length
    return None, 0


def ecn_capable(data: bytes) -> bool:
    """Whether a packet in which `parse` finds no defect is ECN-capable: ECT(0), ECT(1) or CE."""
    return data[1] & (_CE_IPV4 if data[0] >> 4 == 4 else _CE_IPV6) != 0


def marked(data: bytes) -> bytes:
    """An ECN-capable packet with the congestion mark (CE, RFC 3168)."""
    if data[0] >> 4 == 6:
        return data[:1] + bytes([data[1] | _CE_IPV6]) + data[2:]
    service = data[1] | _CE_IPV4
    # RFC 1624, equation 3: the words differ by the change of the second byte.
    (checksum,) = _CHECKSUM.unpack_from(data, 10)
    checksum = (~checksum & 0xFFFF) + service - data[1]
    checksum = ~((checksum & 0xFFFF) + (checksum >> 16)) & 0xFFFF
    return data[:1] + bytes([service]) + data[2:10] + _CHECKSUM.pack(checksum) + data[12:]


def _ipv4(data: bytes, present: int) -> Header:
    copied = len(data)
    if copied < 20:
        return Header(NO_FLOW, copied, 0, False, False, False, Defect.COPY)
    first, length, fragment, protocol, source, destination = _IPV4.unpack_from(data)
    length = min(length, present)
    ports = (first & 0x0F) * 4
    defect = None
    if ports < 20:
        defect = Defect.HEADER_LENGTH
    elif length < ports:
        defect = Defect.LENGTH
    elif not fragment & _IPV4_OFFSET and protocol in PORT_PROTOCOLS:
        if ports + 4 <= length and ports + 4 <= copied:
            source_port, destination_port = _PORTS.unpack_from(data, ports)
            return Header(
                FlowKey(protocol, source, destination, source_port, destination_port),
                length,
                4,
                True,
                fragment & _IPV4_MORE_OR_OFFSET != 0,
                False,
                None,
            )
        defect = Defect.SHORT if ports + 4 > length else Defect.COPY
    return Header(
        FlowKey(protocol, source, destination, 0, 0),
        length if length >= max(ports, 20) else copied,
        4,
        False,
        fragment & _IPV4_MORE_OR_OFFSET != 0,
        fragment & _IPV4_OFFSET != 0,
        defect,
    )


def _ipv6(data: bytes, present: int) -> Header:
    copied = len(data)
    if copied < 40:
        return Header(NO_FLOW, copied, 0, False, False, False, Defect.COPY)
    payload, protocol, source, destination = _IPV6.unpack_from(data)
    length = payload + 40
    defect = None
    if not payload and protocol == _HOP_BY_HOP:
        jumbo = _jumbo_payload(data)
        if not _MIN_JUMBO_PAYLOAD <= jumbo <= MAX_JUMBO_PAYLOAD:
            defect = Defect.LENGTH
            length = copied
        else:
            length = jumbo + 40
    length = min(length, present)

    offset = 40
    fragment = later = False
    for _ in range(MAX_EXTENSIONS):
        if protocol not in _EXTENSIONS or defect is not None:
            break
        if offset + 8 > length:
            defect = Defect.SHORT
        elif offset + 8 > copied:
            defect = Defect.COPY
        elif protocol == _FRAGMENT:
            (field,) = _FRAGMENT_FIELD.unpack_from(data, offset)
            fragment = field & _IPV6_MORE_OR_OFFSET != 0
            later = field & _IPV6_OFFSET != 0
            protocol = data[offset]
            offset += 8
            if later:
                break
        else:
            # AH counts 4-byte words less two, the others 8-byte words less one.
            words = data[offset + 1]
            step = (words + 2) * 4 if protocol == _AUTHENTICATION else (words + 1) * 8
            protocol = data[offset]
            offset += step

    if defect is None and not later:
        if offset > length:
            defect = Defect.SHORT
        elif protocol in _EXTENSIONS:
            defect = Defect.EXTENSIONS
        elif protocol in PORT_PROTOCOLS:
            if offset + 4 > length:
                defect = Defect.SHORT
            elif offset + 4 > copied:
                defect = Defect.COPY
            else:
                source_port, destination_port = _PORTS.unpack_from(data, offset)
                flow = FlowKey(protocol, source, destination, source_port, destination_port)
                return Header(flow, length, 6, True, fragment, False, None)
    flow = FlowKey(protocol, source, destination, 0, 0)
    return Header(flow, length, 6, False, fragment, later, defect)


def _jumbo_payload(data: bytes) -> int:
    """The jumbo payload option of the hop-by-hop header at byte 40; 0 if there is none."""
    if len(data) < 48:
        return 0
    end = min(40 + (data[41] + 1) * 8, len(data))
    option = 42
    while option + 6 <= end:
        kind = data[option]
        if kind == _JUMBO_PAYLOAD:
            value: int = _JUMBO_LENGTH.unpack_from(data, option + 2)[0]
            return value if data[option + 1] == 4 else 0
        option += 1 if kind == _PAD1 else data[option + 1] + 2
    return 0
