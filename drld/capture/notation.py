"""Packets as operators write them: `tcp 10.0.0.1:1234 > 10.9.2.3:80 in eth0 out eth1 size 1500`.

A packet may also be given as its bytes in hexadecimal, from the IP header on. The same words may
follow either form:

- `in INTERFACE`, `out INTERFACE`: where the packet crosses this host. Without both, it crosses
  every interface that a limit names.
- `size N`: length of the IP packet, bytes; if left out, 1,500, or the length that the given bytes
  state.
- `mark N`: the packet's mark.
- `ecn`: the packet is ECN-capable; `fragment`: it is a later fragment. Bytes say that themselves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import NamedTuple

from drld.capture.packet import COPY_BYTES, PORT_PROTOCOLS, Header, ecn_capable, parse
from drld.errors import InputError
from drld.model import FlowKey
from drld.police.direction import Direction
from drld.police.source_sample import SourcePrefix

PROTOCOLS = {
    "icmp": 1,
    "igmp": 2,
    "ipip": 4,
    "tcp": 6,
    "udp": 17,
    "dccp": 33,
    "ipv6": 41,
    "gre": 47,
    "esp": 50,
    "ah": 51,
    "icmpv6": 58,
    "ospf": 89,
    "vrrp": 112,
    "sctp": 132,
    "udplite": 136,
}
_NAMES = {number: name for name, number in PROTOCOLS.items()}
_SIZE = 1500
_EXAMPLE = '"tcp 10.0.0.1:1234 > 10.9.2.3:80 out eth1", or the bytes of a packet'
_ENDPOINT = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([0-9.]+)):([0-9]{1,5})", re.ASCII)
_MAX_MARK = 2**32 - 1


class Packet(NamedTuple):
    """One packet at the hooks of this host."""

    header: Header
    capable: bool
    """Whether the packet is ECN-capable."""
    mark: int = 0
    crosses: tuple[tuple[Direction, str], ...] = ()
    """The points at which the packet crosses this host, in order. Without points, the packet
    crosses at every point that a limit is about."""

    def __str__(self) -> str:
        """Return the packet in the notation of this module, without a word for a mark of 0."""
        header = self.header
        what = "an unreadable packet"
        if header.family:
            source, destination = endpoints(header)
            what = f"{protocol_name(header.flow.protocol)} {source} > {destination}"
        crosses = "".join(f" {direction.value} {name}" for direction, name in self.crosses)
        mark = f" mark {self.mark:#x}" if self.mark else ""
        ecn = " ecn" if self.capable else ""
        fragment = " fragment" if header.later_fragment else ""
        return f"{what}{crosses} size {header.length}{mark}{ecn}{fragment}"


def protocol_name(number: int) -> str:
    """Return the name of a protocol, or its number as text."""
    return _NAMES.get(number, str(number))


def endpoints(header: Header) -> tuple[str, str]:
    """Return the source and the destination of a packet with known addresses, with ports if these
    are known."""
    flow = header.flow
    ends = ((flow.source, flow.source_port), (flow.destination, flow.destination_port))
    source, destination = (_endpoint(*end, header.ports_known) for end in ends)
    return source, destination


def flow_name(flow: FlowKey, prefix: SourcePrefix | None) -> str:
    """Return the text of a flow in lists: its five-tuple, or its source if a limit's flows are
    sources."""
    if prefix is not None:
        width = prefix.ipv4 if len(flow.source) == 4 else prefix.ipv6
        return f"{ip_address(flow.source)}/{width}"
    ported = flow.protocol in PORT_PROTOCOLS and flow[3:] != (0, 0)
    source = _endpoint(flow.source, flow.source_port, ported)
    destination = _endpoint(flow.destination, flow.destination_port, ported)
    return f"{protocol_name(flow.protocol)} {source} > {destination}"


def _endpoint(packed: bytes, port: int, ported: bool) -> str:
    address = str(ip_address(packed))
    if not ported:
        return address
    return f"[{address}]:{port}" if len(packed) == 16 else f"{address}:{port}"


def read(text: str) -> Packet:
    """Read a packet.

    Raises:
        InputError: the text is no packet.
    """
    words = text.split()
    if ">" in words:
        start = words.index(">") + 2
        return _described(words[:start], _options(words[start:]))
    start = next((at for at, word in enumerate(words) if word in _TAKES), len(words))
    options = _options(words[start:])
    for flag in ("ecn", "fragment"):
        if flag in options:
            raise InputError(f"{flag}: must be left out behind the bytes of a packet")
    try:
        data = bytes.fromhex("".join(words[:start]).removeprefix("0x"))
    except ValueError:
        data = b""
    if not data:
        raise InputError(f"packet: must be one such as {_EXAMPLE} (got {text!r})")
    size = _number(options, "size", 1 << 32, None)
    if size is None:
        return _of(parse(data[:COPY_BYTES]), data, options)
    if size < len(data):
        raise InputError(f"size: must be at least the {len(data)} bytes given (got {size})")
    return _of(parse(data[:COPY_BYTES], size), data, options)


def crossing(words: str) -> tuple[tuple[tuple[Direction, str], ...], int]:
    """Read the points at which packets cross this host, and their mark, from words such as `in eth0
    mark 1`.

    Raises:
        InputError: there are other words.
    """
    options = _options(words.split())
    for word in ("size", "ecn", "fragment"):
        if word in options:
            raise InputError(f"{word}: must be left out, as a capture says it")
    described = _at(parse(b""), False, options)
    return described.crosses, described.mark


def captured_packet(
    data: bytes, size: int, crosses: tuple[tuple[Direction, str], ...], mark: int
) -> Packet:
    """Return a packet of a capture from its first bytes, its size, and the result of `crossing`."""
    header = parse(data[:COPY_BYTES], size)
    return Packet(header, _capable(header, data), mark, crosses)


def _capable(header: Header, data: bytes) -> bool:
    return header.defect is None and ecn_capable(data)


def _of(header: Header, data: bytes, options: Mapping[str, str]) -> Packet:
    return _at(header, _capable(header, data), options)


def _at(header: Header, capable: bool, options: Mapping[str, str]) -> Packet:
    crosses = [(way, options[way.value]) for way in Direction if way.value in options]
    mark = _number(options, "mark", _MAX_MARK, 0)
    return Packet(header, capable, mark or 0, tuple(crosses))


_TAKES: Mapping[str, bool] = {
    "in": True, "out": True, "size": True, "mark": True, "ecn": False, "fragment": False,
}  # fmt: skip
"""The words that may follow a packet, each with whether a value comes after the word."""


def _options(words: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        if word not in _TAKES or word in found:
            raise InputError(f"packet: must have each of {', '.join(_TAKES)} once (got {word!r})")
        value = next(rest, None) if _TAKES[word] else ""
        if value is None:
            raise InputError(f"{word}: must have a value")
        found[word] = value
    return found


def _number(options: Mapping[str, str], word: str, most: int, default: int | None) -> int | None:
    if word not in options:
        return default
    try:
        value = int(options[word], 0)
    except ValueError:
        value = -1
    if not 0 <= value <= most:
        raise InputError(f"{word}: must be a number from 0 to {most} (got {options[word]!r})")
    return value


def _described(words: Sequence[str], options: Mapping[str, str]) -> Packet:
    """Return the packet that `PROTOCOL SOURCE > DESTINATION` describes."""
    if len(words) != 4 or words[2] != ">":
        raise InputError(f"packet: must be one such as {_EXAMPLE} (got {' '.join(words)!r})")
    name = words[0].lower()
    protocol = PROTOCOLS.get(name, int(name) if name.isascii() and name.isdigit() else 256)
    if protocol > 255:
        raise InputError(
            f"protocol: must be a number from 0 to 255, or one of {', '.join(PROTOCOLS)} "
            f"(got {words[0]!r})"
        )
    later = "fragment" in options
    ported = protocol in PORT_PROTOCOLS and not later
    source, source_port = _end("source", words[1], ported)
    destination, destination_port = _end("destination", words[3], ported)
    if len(source) != len(destination):
        raise InputError(f"destination: must be of the source's family (got {words[3]!r})")
    size = _number(options, "size", 1 << 32, _SIZE)
    flow = FlowKey(protocol, source, destination, source_port, destination_port)
    family = 4 if len(source) == 4 else 6
    header = Header(flow, size or 0, family, ported, later, later, None)
    return _at(header, "ecn" in options, options)


def _end(name: str, text: str, ported: bool) -> tuple[bytes, int]:
    """Return the address and the port of one end of a packet's path."""
    match = _ENDPOINT.fullmatch(text) if ported else None
    port = int(match[3]) if match else 0
    if (ported and match is None) or port > 65535:
        example = '"10.0.0.1:80" or "[fd00::1]:80"'
        raise InputError(f"{name}: must be an address and a port, {example} (got {text!r})")
    try:
        return ip_address((match[1] or match[2]) if match else text).packed, port
    except ValueError:
        wanted = "an address and a port" if ported else "an address without a port"
        raise InputError(f"{name}: must be {wanted} (got {text!r})") from None
