"""The packets' part of a configuration: the targets of limits, and how a daemon polices packets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Network, IPv6Network
from typing import ClassVar

from drld.capture.notation import protocol_name
from drld.police.direction import Direction
from drld.spec import LimitSpec, PlaneSpec, Target


@dataclass(frozen=True, slots=True)
class Match(Target):
    """Which packets fall under a limit: every condition given must hold.

    `mark` is (value, mask): a packet matches where `packet_mark & mask == value`.
    A port condition never matches a packet whose ports cannot be read (a later fragment, a
    protocol without ports): docs/matching.md.
    """

    items: ClassVar[str] = "packets"
    flow: ClassVar[str] = "5-tuple"

    interface: str
    """A name, or a pattern (`drld.capture.patterns`)."""
    direction: Direction
    source: IPv4Network | IPv6Network | None = None
    destination: IPv4Network | IPv6Network | None = None
    protocol: int | None = None
    source_ports: tuple[tuple[int, int], ...] = ()
    destination_ports: tuple[tuple[int, int], ...] = ()
    mark: tuple[int, int] | None = None

    def __str__(self) -> str:
        """A short text for lists: the interface and the addresses."""
        source = f" from {self.source}" if self.source else ""
        destination = f" to {self.destination}" if self.destination else ""
        return f"{self.direction.value} {self.interface}{source}{destination}"

    def written(self) -> dict[str, str]:
        """See `Target.written`."""
        found: dict[str, object] = {
            self.direction.value: self.interface,
            "source": self.source,
            "destination": self.destination,
            "protocol": None if self.protocol is None else protocol_name(self.protocol),
            "source_port": _ports(self.source_ports),
            "destination_port": _ports(self.destination_ports),
            "mark": self.mark and f"{self.mark[0]:#x}/{self.mark[1]:#x}",
        }
        return {key: str(value) for key, value in found.items() if value is not None}

    def families(self) -> tuple[int, ...]:
        """Families of the packets that can match; 0: the packet's addresses are unknown."""
        prefixes = [prefix for prefix in (self.source, self.destination) if prefix is not None]
        if prefixes:
            versions = {prefix.version for prefix in prefixes}
            return tuple(versions) if len(versions) == 1 else ()
        narrowed = self.protocol is not None or self.source_ports or self.destination_ports
        return (4, 6) if narrowed else (0, 4, 6)

    def on_host(self, interfaces: Mapping[str, str]) -> Match:
        """The same packets, by this host's name of the interface."""
        return replace(self, interface=interfaces.get(self.interface, self.interface))


def _ports(ranges: tuple[tuple[int, int], ...]) -> str | None:
    """Ports as in a file, or None for any."""
    each = (str(low) if low == high else f"{low}-{high}" for low, high in ranges)
    return ", ".join(each) or None


def match_of(limit: LimitSpec) -> Match:
    """The target of a limit on packets."""
    assert isinstance(limit.match, Match)
    return limit.match


@dataclass(frozen=True, slots=True)
class PacketsSpec(PlaneSpec):
    """How one daemon polices packets."""

    key: ClassVar[str] = "packets"

    datapath: str = "auto"
    """`auto`, `kernel` or `nfqueue`."""
    firewall: str = "auto"
    """`auto`, `nft`, `iptables` or `none` (rules printed for the operator to install)."""
    queue: int | None = None
    """NFQUEUE number; None picks a free one."""
    timestamps: str = "auto"
    """Source of arrival times on the nfqueue datapath: `auto`, `ebpf`, `kernel` or `read`."""
