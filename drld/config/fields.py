"""The values a configuration is written with: how each is read, and what is said if it cannot be.

Each reader takes what TOML gave and returns what `drld.spec` wants, or raises ValueError with a
phrase that says what is allowed there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Annotated, Literal, TypeVar

from pydantic import PlainValidator

from drld import units
from drld.config.problems import PartsError
from drld.units import BYTES, Unit

T = TypeVar("T", bound=Hashable)

MIN_WEIGHT, MAX_WEIGHT = 0.001, 1000

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
# Firewalls read a leading dash as an option and "+" and "*" as wildcards.
_INTERFACE = re.compile(r"(?!-)(?!\.{1,2}$)[A-Za-z0-9._-]{1,15}", re.ASCII)
_PATTERN = re.compile(r"(?!-)[A-Za-z0-9._-]{1,14}\*", re.ASCII)
_ENDPOINT = re.compile(r"(?:\[([^\[\]]*)\]|([^\[\]:]*)):([0-9]{1,5})", re.ASCII)
_GROUP = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}", re.ASCII)
_URL = re.compile(
    r"https?://(?:([A-Za-z0-9.-]{1,253})|\[([0-9A-Fa-f:.]{2,45})\]):([0-9]{1,5})/?", re.ASCII
)
_HOST = re.compile(r"(?:[A-Za-z0-9-]{1,63}\.)*[A-Za-z0-9-]{1,63}\.?", re.ASCII)
_MAX_GROUP = 2**32 - 2  # chown takes the number above for none
_LONGEST_SOCKET_PATH = 107
_LONGEST_PATH = 4095
MOST_ADDRESSES = 16


def quantity(
    parse: Callable[[str], int], allowed: str, low: int = 0, high: float = math.inf
) -> Callable[[object], int]:
    """A reader for a quantity with its unit, within bounds."""

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


def counted(*units: Unit) -> Callable[[object], Unit]:
    """A reader for the name of one of these units."""

    def read(value: object) -> Unit:
        for unit in units:
            if value == unit.name:
                return unit
        raise ValueError(" or ".join(f'"{unit.name}"' for unit in units))

    return read


def _name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError("a name: 1 to 64 letters, digits, dots, dashes or underscores")
    if value in {".", ".."}:
        # No client can ask for `/v1/limits/..`: it shortens the path first.
        raise ValueError('a name other than "." and "..", which paths and URLs use for directories')
    return value


def any_endpoint(value: object) -> tuple[str, int]:
    """An address of this host, or the wildcard of a family, and a port."""
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
    if isinstance(address, IPv6Address) and address.scope_id:
        raise ValueError("an address without a zone")
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        raise ValueError(
            f'an IPv4 address without "::ffff:", such as "{address.ipv4_mapped}:{port}"'
        )
    if address.is_multicast or str(address) == "255.255.255.255":
        raise ValueError("the address of one host")
    if not 1 <= int(port) <= 65535:
        raise ValueError("a port from 1 to 65535")
    return str(address), int(port)


def _endpoint(value: object) -> tuple[str, int]:
    host, port = any_endpoint(value)
    if ip_address(host).is_unspecified:
        raise ValueError("one address, not the wildcard: a daemon binds the address it announces")
    return host, port


def endpoint_or_path(value: object) -> tuple[str, int] | str:
    """A TCP address and port, or the path of a unix socket."""
    if isinstance(value, str) and value.startswith("/"):
        return socket_path(value)
    return any_endpoint(value)


def each(read: Callable[[object], T], values: Sequence[object]) -> tuple[T, ...]:
    """The elements of an array, each read by `read`; they must differ.

    Raises:
        PartsError: some elements cannot be used.
    """
    found: list[T] = []
    mistakes: dict[int, str] = {}
    for index, value in enumerate(values):
        try:
            element = read(value)
        except ValueError as error:
            mistakes[index] = str(error)
        else:
            if element in found:
                mistakes[index] = "unique in its array"
            found.append(element)
    if mistakes:
        raise PartsError(mistakes)
    return tuple(found)


def one_or_several(read: Callable[[object], T], elements: str) -> Callable[[object], tuple[T, ...]]:
    """A reader for one value, or an array of up to `MOST_ADDRESSES`; `elements` is the noun for
    them."""

    def read_all(value: object) -> tuple[T, ...]:
        if not isinstance(value, list):
            return (read(value),)
        if not 1 <= len(value) <= MOST_ADDRESSES:
            raise ValueError(f"1 to {MOST_ADDRESSES} {elements}")
        return each(read, value)

    return read_all


def socket_path(value: object) -> str:
    """The path of a unix socket."""
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


def _interface(value: object) -> str:
    if isinstance(value, str):
        if _INTERFACE.fullmatch(value):
            return value
        name, at, _ = value.partition("@")
        if at and _INTERFACE.fullmatch(name):
            raise ValueError(f'the interface\'s name alone: "{name}"')
    raise ValueError('the name of one interface such as "eth0"')


def _interfaces(value: object) -> str:
    if isinstance(value, str) and _PATTERN.fullmatch(value):
        return value
    try:
        return _interface(value)
    except ValueError as error:
        raise ValueError(f'{error}, or a pattern with "*" at its end such as "veth*"') from None


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


def _weight(value: object) -> float:
    number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0
    if not MIN_WEIGHT <= number <= MAX_WEIGHT:
        raise ValueError(f"a number from {MIN_WEIGHT} to {MAX_WEIGHT}")
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
Weight = Annotated[float, PlainValidator(_weight), Kind(f"number, {MIN_WEIGHT} to {MAX_WEIGHT}")]
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
Listen = Annotated[
    tuple[tuple[str, int], ...],
    PlainValidator(one_or_several(any_endpoint, "addresses, each with a port")),
    Kind(f"address, or array of up to {MOST_ADDRESSES}"),
]
ListenOrPaths = Annotated[
    tuple[tuple[str, int] | str, ...],
    PlainValidator(
        one_or_several(endpoint_or_path, "addresses with ports, or paths of unix sockets")
    ),
    Kind(f"address or path of a unix socket, or array of up to {MOST_ADDRESSES}"),
]
Group = Annotated[str | int, PlainValidator(_group), Kind("name or number of a group")]
SocketPath = Annotated[
    str,
    PlainValidator(socket_path),
    Kind(f"absolute path, up to {_LONGEST_SOCKET_PATH} bytes"),
]
Interface = Annotated[str, PlainValidator(_interface), Kind("name of an interface")]
Interfaces = Annotated[
    str, PlainValidator(_interfaces), Kind('name of an interface, or a pattern such as `"veth*"`')
]
