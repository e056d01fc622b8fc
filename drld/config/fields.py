"""The values a configuration is written with: how each is read, and what is said if it cannot be.

Each reader takes what TOML gave and returns what `drld.spec` wants, or raises ValueError with a
phrase that says what is allowed there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Annotated, Literal

from pydantic import PlainValidator

from drld import units
from drld.policy import SourcePrefix
from drld.units import BYTES

MAX_WEIGHT = 1000

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

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
# Firewalls read a leading dash as an option and "+" and "*" as wildcards.
_INTERFACE = re.compile(r"(?!-)(?!\.{1,2}$)[A-Za-z0-9._-]{1,15}", re.ASCII)
_ENDPOINT = re.compile(r"(?:\[([^\[\]]*)\]|([^\[\]:]*)):([0-9]{1,5})", re.ASCII)
_GROUP = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}", re.ASCII)
_NUMBER = re.compile(r"0x[0-9a-fA-F]{1,8}|[0-9]{1,10}", re.ASCII)
_PORTS = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", re.ASCII)
_URL = re.compile(
    r"https?://(?:([A-Za-z0-9.-]{1,253})|\[([0-9A-Fa-f:.]{2,45})\]):([0-9]{1,5})/?", re.ASCII
)
_HOST = re.compile(r"(?:[A-Za-z0-9-]{1,63}\.)*[A-Za-z0-9-]{1,63}\.?", re.ASCII)
_FLOW = re.compile(r"source(?:/([0-9]{1,2})(?:/([0-9]{1,3}))?)?", re.ASCII)
_MAX_MARK = 2**32 - 1
_MAX_GROUP = 2**32 - 2  # chown takes the number above for none
_LONGEST_SOCKET_PATH = 107
_LONGEST_PATH = 4095


def quantity(
    parse: Callable[[str], int], allowed: str, low: int = 0, high: float = math.inf
) -> Callable[[object], int]:
    """Read a quantity with its unit, within bounds."""

    def read(value: object) -> int:
        if not isinstance(value, str):
            raise ValueError(allowed)
        try:
            number = parse(value)
        except units.QuantityError as error:
            raise ValueError(error.allowed) from None
        if not low <= number <= high:
            raise ValueError(allowed)
        return number

    return read


@dataclass(frozen=True, slots=True)
class Kind:
    """Type and bounds of a value, as the reference states them (`drld.config.reference`)."""

    text: str


@dataclass(frozen=True, slots=True)
class Quantity:
    """Reads a quantity within bounds; the bounds are written as people write the quantity."""

    kind: str
    parse: Callable[[str], int]
    example: str
    low: str
    high: str

    def __call__(self, value: object) -> int:
        """The quantity in the units of `drld.model`.

        Raises:
            ValueError: with a phrase that says what is allowed.
        """
        allowed = f'a {self.kind} such as "{self.example}", from "{self.low}" to "{self.high}"'
        return quantity(self.parse, allowed, self.parse(self.low), self.parse(self.high))(value)

    @property
    def described(self) -> Kind:
        """Type and bounds, for the reference."""
        return Kind(f"{self.kind}, `{self.low}` to `{self.high}`")


def _name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError("a name: 1 to 64 letters, digits, dots, dashes or underscores")
    return value


def _endpoint(value: object) -> tuple[str, int]:
    allowed = 'an address and a port such as "10.0.0.1:7946" or "[fd00::1]:7946"'
    if not isinstance(value, str) or not (match := _ENDPOINT.fullmatch(value)):
        raise ValueError(allowed)
    bracketed, plain, port = match.groups()
    try:
        address = ip_address(bracketed or plain)
    except ValueError:
        raise ValueError(f"{allowed}, and no host name") from None
    if (bracketed is not None) != isinstance(address, IPv6Address):
        raise ValueError(allowed)
    if isinstance(address, IPv6Address) and (address.scope_id or address.ipv4_mapped):
        raise ValueError("an address without a zone, and IPv4 as IPv4")
    if address.is_unspecified:
        raise ValueError("one address, not the wildcard: a daemon binds the address it announces")
    if address.is_multicast or str(address) == "255.255.255.255":
        raise ValueError("the address of one host")
    if not 1 <= int(port) <= 65535:
        raise ValueError("a port from 1 to 65535")
    return str(address), int(port)


def _socket_path(value: object) -> str:
    if not isinstance(value, str) or not value.startswith("/") or value.endswith("/"):
        raise ValueError('an absolute path such as "/run/drld/lim1.sock"')
    if "\0" in value or len(value.encode()) > _LONGEST_SOCKET_PATH:
        raise ValueError(f"a path of at most {_LONGEST_SOCKET_PATH} bytes, none of them zero")
    return value


def _group(value: object) -> str | int:
    if type(value) is int and 0 <= value <= _MAX_GROUP:
        return value
    if isinstance(value, str) and _GROUP.fullmatch(value):
        return value
    raise ValueError('a group of this host, such as "drld" or 1000')


def _file_path(value: object) -> str:
    if not isinstance(value, str) or not value.startswith("/") or value.endswith("/"):
        raise ValueError('an absolute path of a file such as "/etc/drld/ca.pem"')
    if "\0" in value or len(value.encode()) > _LONGEST_PATH:
        raise ValueError(f"a path of at most {_LONGEST_PATH} bytes, none of them zero")
    return value


def _etcd_url(value: object) -> str:
    allowed = 'the URL of an etcd server such as "https://10.0.0.9:2379"'
    if isinstance(value, str) and "@" in value:
        raise ValueError(f"{allowed}; registry.user and registry.password_file say who we are")
    if not isinstance(value, str) or not (match := _URL.fullmatch(value)):
        raise ValueError(allowed)
    name, address, port = match.groups()
    try:
        sound = IPv6Address(address) if address else _HOST.fullmatch(name)
    except ValueError:
        sound = None
    if not sound:
        raise ValueError(allowed)
    if not 1 <= int(port) <= 65535:
        raise ValueError("a port from 1 to 65535")
    return value.rstrip("/")


def _datapath(value: object) -> str:
    if value not in ("auto", "kernel", "nfqueue"):
        raise ValueError('"auto", "kernel" or "nfqueue"')
    return str(value)


def _interface(value: object) -> str:
    if isinstance(value, str):
        if _INTERFACE.fullmatch(value):
            return value
        name, at, _ = value.partition("@")
        if at and _INTERFACE.fullmatch(name):
            raise ValueError(f'the interface\'s name alone: "{name}"')
    raise ValueError('the name of one interface such as "eth0", no wildcard')


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


_read_rate = Quantity(
    "rate",
    units.parse_rate,
    "10mbit",
    units.format_rate(BYTES.min_rate),
    units.format_rate(BYTES.max_rate),
)
_read_burst = Quantity(
    "size", units.parse_size, "75kB", f"{BYTES.min_burst}B", units.format_size(BYTES.max_burst)
)
_read_interval = Quantity("duration", units.parse_duration, "50ms", "10ms", "10s")
_read_time_to_live = Quantity("duration", units.parse_duration, "10s", "2s", "10m")
_read_absence = Quantity("duration", units.parse_duration, "24h", "1m", "8760h")


def _burst_or_auto(value: object) -> int | Literal["auto"]:
    if value == "auto":
        return "auto"
    try:
        return _read_burst(value)
    except ValueError as error:
        raise ValueError(f'"auto", or {error}') from None


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


def _weight(value: object) -> float:
    number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0
    if not 0 < number <= MAX_WEIGHT:
        raise ValueError(f"a number above 0 and at most {MAX_WEIGHT}")
    return float(number)


Rate = Annotated[int, PlainValidator(_read_rate), _read_rate.described]
"""Bytes/s."""
Burst = Annotated[int, PlainValidator(_read_burst), _read_burst.described]
"""Bytes."""
BurstOrAuto = Annotated[
    int | Literal["auto"],
    PlainValidator(_burst_or_auto),
    Kind(f'`"auto"`, or {_read_burst.described.text}'),
]
"""Bytes, or "auto": of the size that `drld.burst.automatic_burst` gives it."""
Weight = Annotated[float, PlainValidator(_weight), Kind(f"number, above 0 to {MAX_WEIGHT}")]
FlowDefinition = Annotated[
    SourcePrefix | None,
    PlainValidator(_flow),
    Kind('`"5-tuple"`, `"source"`, `"source/24"` or `"source/24/56"`'),
]
Interval = Annotated[int, PlainValidator(_read_interval), _read_interval.described]
"""Nanoseconds."""
TimeToLive = Annotated[int, PlainValidator(_read_time_to_live), _read_time_to_live.described]
"""Nanoseconds."""
Absence = Annotated[int, PlainValidator(_read_absence), _read_absence.described]
"""Nanoseconds."""
FilePath = Annotated[str, PlainValidator(_file_path), Kind("absolute path")]
EtcdUrl = Annotated[str, PlainValidator(_etcd_url), Kind("URL with a port")]
Name = Annotated[str, PlainValidator(_name), Kind("name")]
Endpoint = Annotated[tuple[str, int], PlainValidator(_endpoint), Kind("address")]
Group = Annotated[str | int, PlainValidator(_group), Kind("name or number of a group")]
SocketPath = Annotated[
    str,
    PlainValidator(_socket_path),
    Kind(f"absolute path, up to {_LONGEST_SOCKET_PATH} bytes"),
]
DatapathName = Annotated[
    str, PlainValidator(_datapath), Kind('`"auto"`, `"kernel"` or `"nfqueue"`')
]
Interface = Annotated[str, PlainValidator(_interface), Kind("name of an interface")]
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
