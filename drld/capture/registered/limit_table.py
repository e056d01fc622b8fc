"""`[[limit]]` whose `match` is about packets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from drld.capture.registered.fields import (
    PROTOCOLS,
    WITH_PORTS,
    FlowDefinition,
    Mark,
    Ports,
    Prefix,
    Protocol,
)
from drld.capture.spec import Match
from drld.config.fields import BurstOrAuto, Interface, Rate
from drld.config.problems import Location, Problems
from drld.config.schema import LimitTable, Table
from drld.police.direction import Direction
from drld.units import BYTES, Unit


class MatchTable(Table):
    """`match`: which packets fall under a limit.

    A packet must meet every condition given. Fragments and other cases: docs/matching.md.
    """

    in_: Annotated[Interface | None, Field(alias="in")] = None
    """Interface at which packets arrive. Default: one of `in` and `out` is required."""
    out: Interface | None = None
    """Interface by which packets leave. Default: one of `in` and `out` is required."""
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

    unit: ClassVar[Unit] = BYTES

    def target(self) -> Match:
        """Which packets fall under the limit."""
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
        """What makes a flow."""
        return {"flow": self.flow}

    def check(self, where: Location, problems: Problems) -> None:
        """See that there is one direction, and that some packet can meet all conditions."""
        where, match = [*where, "match"], self.match
        if (match.in_ is None) == (match.out is None):
            got = "neither" if match.in_ is None else "both"
            problems.add(where, f'must have exactly one of "in" and "out" (got {got})')
        prefixes = [prefix for prefix in (match.source, match.destination) if prefix is not None]
        versions = {prefix.version for prefix in prefixes}
        if len(versions) == 2:
            other = str(match.destination)
            problems.refuse([*where, "destination"], other, "of the source's family")
        for name, other, version in (("icmp", "icmpv6", 4), ("icmpv6", "icmp", 6)):
            if match.protocol == PROTOCOLS[name] and versions - {version}:
                problems.refuse(
                    [*where, "protocol"], name, f'"{other}": the prefix is not IPv{version}'
                )
        has_ports = match.protocol in {PROTOCOLS[name] for name in WITH_PORTS}
        for key in ("source_port", "destination_port"):
            if getattr(match, key) and not has_ports:
                allowed = f"left out unless protocol is one of {', '.join(WITH_PORTS)}"
                problems.add([*where, key], f"must be {allowed}")
