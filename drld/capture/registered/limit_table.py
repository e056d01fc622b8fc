"""`[[limit]]` whose `match` is about packets, and how its values are read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator

from drld.capture.notation import PROTOCOLS
from drld.capture.spec import Match
from drld.config.fields import BurstOrAuto, Interfaces, Kind, Rate, counted
from drld.config.problems import Location, Problems
from drld.config.schema import LimitTable, Table
from drld.police.direction import Direction
from drld.police.policer import Excess
from drld.police.source_sample import SourcePrefix
from drld.units import BYTES, Unit

WITH_PORTS = ("tcp", "udp", "sctp", "udplite")

_NUMBER = re.compile(r"0x[0-9a-fA-F]{1,8}|[0-9]{1,10}", re.ASCII)
_PORTS = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", re.ASCII)
_FLOW = re.compile(r"source(?:/([0-9]{1,2})(?:/([0-9]{1,3}))?)?", re.ASCII)
_MAX_MARK = 2**32 - 1


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
    if isinstance(value, str):  # `drlctl` has texts.
        value = [part.strip() for part in value.split(",")]
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


class MatchTable(Table):
    """`match`: which packets fall under a limit.

    A packet must meet every condition given. Fragments and other cases: docs/matching.md.
    """

    in_: Annotated[Interfaces | None, Field(alias="in")] = None
    """Interface at which packets arrive. `"veth*"` stands for all that begin so, now and later.
    Default: one of `in` and `out` is required."""
    out: Interfaces | None = None
    """Interface by which packets leave, as `in`. Default: one of `in` and `out` is required."""
    source: Prefix | None = None
    """Source address or prefix, without host bits: `10.9.2.0/24`, not `10.9.2.1/24`. Default:
    any."""
    destination: Prefix | None = None
    """Destination address or prefix, of the family of `source`. Default: any."""
    protocol: Protocol | None = None
    """Transport protocol. Default: any."""
    source_port: Ports = ()
    """Source port; needs a `protocol` of `tcp`, `udp`, `sctp` or `udplite`. Default: any."""
    destination_port: Ports = ()
    """Destination port; as `source_port`. Default: any."""
    mark: Mark | None = None
    """Value of the packet's masked mark; without a mask, all 32 bits count. Default: any."""


class PacketLimitTable(LimitTable):
    """Limits on packets.

    Further keys of a limit whose `match` has `in` or `out`. A packet under several limits must pass
    all of them, in the order of the file.
    """

    unit: Annotated[Unit, PlainValidator(counted(BYTES)), Kind('`"bytes"`')] = BYTES
    """What `rate` and `burst` count. Default: `"bytes"`."""
    rate: Rate
    """What all limiters together may forward."""
    burst: BurstOrAuto = "auto"
    """Depth of the one token bucket that the fleet emulates (docs/operations.md#size-the-burst)."""
    match: MatchTable
    """Target: which packets fall under the limit
    ([below](#match-which-packets-fall-under-a-limit))."""
    on_failure: Literal["share", "open", "closed"] | None = None
    """What passes while the daemon is dead: its static share, all, or no packet
    (docs/operations.md#when-a-daemon-dies). Default: `"share"`; on nfqueue `"closed"`."""
    excess: Literal["drop", "mark"] = "drop"
    """What happens above the limit; `"mark"` marks ECN-capable packets (CE) before it drops any."""
    flow: FlowDefinition = None
    """What makes a flow: addresses, protocol and ports, or the source's prefix alone
    ([below](#flow-what-makes-a-flow)). Default: `"5-tuple"`."""

    def target(self) -> Match:
        """Return the packets that fall under the limit."""
        match = self.match
        return Match(
            interface=match.in_ or match.out or "",
            direction=Direction.IN if match.in_ else Direction.OUT,
            source=match.source,
            destination=match.destination,
            protocol=match.protocol,
            source_ports=match.source_port,
            destination_ports=match.destination_port,
            mark=match.mark,
        )

    def policy(self) -> Mapping[str, Any]:
        """The fate of the excess, and the definition of a flow."""
        return {"excess": Excess(self.excess), "flow": self.flow}

    def check(self, where: Location, problems: Problems) -> None:
        """Check that `match` has one direction, and that some packet can meet all conditions."""
        at, match = [*where, "match"], self.match
        if (match.in_ is None) == (match.out is None):
            got = "neither" if match.in_ is None else "both"
            problems.add(at, f'must have exactly one of "in" and "out" (got {got})')
        prefixes = [prefix for prefix in (match.source, match.destination) if prefix is not None]
        versions = {prefix.version for prefix in prefixes}
        if len(versions) == 2:
            problems.refuse([*at, "destination"], str(match.destination), "of the source's family")
        for name, other, version in (("icmp", "icmpv6", 4), ("icmpv6", "icmp", 6)):
            if match.protocol == PROTOCOLS[name] and versions - {version}:
                problems.refuse(
                    [*at, "protocol"], name, f'"{other}": the prefix is not IPv{version}'
                )
        if match.protocol not in {PROTOCOLS[name] for name in WITH_PORTS}:
            allowed = f"must be left out unless protocol is one of {', '.join(WITH_PORTS)}"
            for key in ("source_port", "destination_port"):
                if getattr(match, key):
                    problems.add([*at, key], allowed)
