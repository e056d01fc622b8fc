"""The values of the keys that only limits on packets have: how each is read.

As `drld.config.fields`.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Annotated

from pydantic import PlainValidator

from drld.config.fields import Kind
from drld.policy import SourcePrefix

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
WITH_PORTS = ("tcp", "udp", "sctp", "udplite")

_NUMBER = re.compile(r"0x[0-9a-fA-F]{1,8}|[0-9]{1,10}", re.ASCII)
_PORTS = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", re.ASCII)
_FLOW = re.compile(r"source(?:/([0-9]{1,2})(?:/([0-9]{1,3}))?)?", re.ASCII)
_MAX_MARK = 2**32 - 1


def _datapath(value: object) -> str:
    if value not in ("auto", "kernel", "nfqueue"):
        raise ValueError('"auto", "kernel" or "nfqueue"')
    return str(value)


def _prefix(value: object) -> IPv4Network | IPv6Network:
    allowed = 'an address or a prefix such as "10.9.2.0/24" or "fd00:9::/64"'
    if not isinstance(value, str):
        raise ValueError(allowed)
    try:
        network = ip_network(value, strict=False)
    except ValueError:
        raise ValueError(allowed) from None
    if isinstance(network, IPv6Network) and network.network_address.scope_id:
        raise ValueError(allowed)
    if "/" in value and ip_address(value.partition("/")[0]) != network.network_address:
        raise ValueError(f'a prefix without host bits: "{network}"?')
    return network


def _protocol(value: object) -> int:
    number = PROTOCOLS.get(value.lower()) if isinstance(value, str) else None
    if number is None:
        number = _number(value)
    if number is None or number > 255:
        raise ValueError(f"a protocol number from 0 to 255, or one of {', '.join(PROTOCOLS)}")
    return number


def _ports(value: object) -> tuple[tuple[int, int], ...]:
    items = value if isinstance(value, list) else [value]
    if not items:
        raise ValueError("at least one port")
    return tuple(_port_range(item) for item in items)


def _port_range(value: object) -> tuple[int, int]:
    text = str(value) if type(value) is int and 0 <= value <= 65535 else value
    match = _PORTS.fullmatch(text) if isinstance(text, str) else None
    if match:
        low, high = int(match[1]), int(match[2] or match[1])
        if 1 <= low <= high <= 65535:
            return low, high
    raise ValueError('a port from 1 to 65535, a range such as "8000-8100", or an array of these')


def _mark(value: object) -> tuple[int, int]:
    allowed = 'a 32-bit mark such as 16, "0x10" or "0x10/0xff" (value/mask)'
    mark, mask = _number(value), _number(_MAX_MARK)
    if isinstance(value, str) and "/" in value:
        mark, mask = (_number(part) for part in value.split("/", 1))
    if mark is None or mask is None:
        raise ValueError(allowed)
    if mask == 0:
        raise ValueError(f"{allowed}; a mask of 0 selects every packet")
    if mark & ~mask:
        raise ValueError(f"{allowed}; the mask {mask:#x} leaves no packet the mark {mark:#x}")
    return mark, mask


def _number(value: object) -> int | None:
    """A 32-bit number, or None."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = int(value, 16) if value.startswith("0x") else int(value)
    return value if type(value) is int and 0 <= value <= _MAX_MARK else None


def _flow(value: object) -> SourcePrefix | None:
    if value == "5-tuple":
        return None
    match = _FLOW.fullmatch(value) if isinstance(value, str) else None
    if match:
        prefix = SourcePrefix(*(int(length) for length in match.groups() if length))
        if 1 <= prefix.ipv4 <= 32 and 1 <= prefix.ipv6 <= 128:
            return prefix
    raise ValueError(
        '"5-tuple", "source", or "source" with prefix lengths: "source/24" for IPv4 (1 to 32), '
        '"source/24/56" for IPv4 and IPv6 (1 to 128)'
    )


FlowDefinition = Annotated[
    SourcePrefix | None,
    PlainValidator(_flow),
    Kind('`"5-tuple"`, `"source"`, `"source/24"` or `"source/24/56"`'),
]
DatapathName = Annotated[
    str, PlainValidator(_datapath), Kind('`"auto"`, `"kernel"` or `"nfqueue"`')
]
Prefix = Annotated[IPv4Network | IPv6Network, PlainValidator(_prefix), Kind("address or prefix")]
Protocol = Annotated[
    int,
    PlainValidator(_protocol),
    Kind(f"integer, 0 to 255, or {', '.join(f'`{name}`' for name in PROTOCOLS)}"),
]
Ports = Annotated[
    tuple[tuple[int, int], ...],
    PlainValidator(_ports),
    Kind('port, range such as `"8000-8100"`, or array of these'),
]
Mark = Annotated[
    tuple[int, int], PlainValidator(_mark), Kind('`16`, `"0x10"` or `"0x10/0xff"` (value/mask)')
]
