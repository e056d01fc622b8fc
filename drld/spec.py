"""The configuration of one daemon, validated and immutable.

`drld.config` makes these from TOML; everything behind it reads only these. A limit is a policy
(`drld.policy`) and its target, `match`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network

from drld.gossip.wire.keyring import KeyRing
from drld.policy import Policy


def format_endpoint(host: str, port: int) -> str:
    """Write an address and a port as the configuration does."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Direction(enum.Enum):
    """Which way a limit's packets cross its interface."""

    IN = "in"
    OUT = "out"


class OnFailure(enum.Enum):
    """What happens to a limit's packets when the daemon is dead."""

    DEFAULT = "default"
    """Not said: the static share on the datapath that can keep it up, no packet on the other."""
    SHARE = "share"
    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Match:
    """Which packets fall under a limit: every condition given must hold.

    `mark` is (value, mask): a packet matches where `packet_mark & mask == value`.
    A port condition never matches a packet whose ports cannot be read (a later fragment, a
    protocol without ports): docs/matching.md.
    """

    interface: str
    direction: Direction
    source: IPv4Network | IPv6Network | None = None
    destination: IPv4Network | IPv6Network | None = None
    protocol: int | None = None
    source_ports: tuple[tuple[int, int], ...] = ()
    destination_ports: tuple[tuple[int, int], ...] = ()
    mark: tuple[int, int] | None = None

    def __str__(self) -> str:
        """For lists: the interface and the addresses."""
        source = f" from {self.source}" if self.source else ""
        destination = f" to {self.destination}" if self.destination else ""
        return f"{self.direction.value} {self.interface}{source}{destination}"


@dataclass(frozen=True, slots=True)
class LimitSpec:
    """One limit as one limiter enforces it: a policy and its target."""

    policy: Policy
    match: Match
    """The target: which packets fall under the limit."""
    on_failure: OnFailure = OnFailure.DEFAULT

    @property
    def id(self) -> int:
        """Number of the limit, 1 to 65535."""
        return self.policy.id

    @property
    def name(self) -> str:
        """Name of the limit."""
        return self.policy.name


@dataclass(frozen=True, slots=True)
class PeerSpec:
    """Another limiter of the fleet."""

    name: str
    address: tuple[str, int]


@dataclass(frozen=True, slots=True)
class GossipSpec:
    """The communication fabric of the fleet."""

    fabric: str
    branching: int
    interval_ns: int
    """How often a limiter sends; also the period of the daemon's tick."""
    written: frozenset[str] | None = field(default=None, compare=False)
    """Keys that the operator wrote; None: all."""


@dataclass(frozen=True, slots=True)
class RegistrySpec:
    """The fleet's registry in etcd (docs/registry.md)."""

    endpoints: tuple[str, ...]
    """URLs of etcd servers of one cluster; they are tried in this order."""
    fleet: str
    ttl_ns: int
    """How long this limiter counts as alive after etcd heard from it last."""
    cache: str
    """Path of the file that keeps what the registry said last."""
    user: str | None = None
    password_file: str | None = None
    ca: str | None = None
    """Path of the certificates to trust (PEM); None: those of the system."""
    cert: str | None = None
    key: str | None = None
    interfaces: Mapping[str, str] = field(default_factory=dict)
    """What the fleet's limits call an interface, and what it is called on this host."""
    forget_after_ns: int | None = None
    """How long a member may be gone before it is removed; None: until somebody does it."""


@dataclass(frozen=True, slots=True)
class ProbeSpec:
    """How limiters find out which peers are alive (drld.gossip.health.probes); LAN defaults."""

    period_ns: int = 1_000_000_000
    """Each limiter probes one other in this time."""
    timeout_ns: int = 500_000_000
    """For an answer, before others are asked to probe as well."""
    helpers: int = 3
    """How many are asked."""
    suspicion: float = 4.0
    """Periods that a suspicion and its refutation take through a fleet of ten."""
    suspicion_max: float = 6.0
    """Factor of that, for a suspicion that nobody else confirms."""
    isolation: int = 5
    """Periods without any answer after which a limiter takes itself for cut off."""
    retransmissions: int = 4
    """How often each limiter passes a rumour on, in a fleet of nine."""
    patience: int = 8
    """Factor less one by which a limiter that runs late waits longer, at the most."""


@dataclass(frozen=True, slots=True)
class PacketsSpec:
    """How one daemon polices packets."""

    datapath: str = "auto"
    """`auto`, `kernel` or `nfqueue`."""
    firewall: str = "auto"
    """`auto`, `nft`, `iptables` or `none` (rules printed for the operator to install)."""
    queue: int | None = None
    """NFQUEUE number; None picks a free one."""
    timestamps: str = "auto"
    """When a packet arrived, on the nfqueue datapath: `auto`, `ebpf`, `kernel` or `read`."""


@dataclass(frozen=True, slots=True)
class LimiterSpec:
    """One daemon."""

    name: str
    listen: tuple[str, int]
    control: str
    """Path of the control socket."""
    gossip: GossipSpec
    peers: tuple[PeerSpec, ...]
    limits: tuple[LimitSpec, ...]
    packets: PacketsSpec = field(default_factory=PacketsSpec)
    control_group: str | int | None = None
    """That may open the control socket, besides the daemon's user; None is the daemon's own."""
    registry: RegistrySpec | None = None
    joined: bool = True
    """False: some of the fleet may not count this limiter yet. It then takes no part in gossip, so
    that it enforces its static share."""
    ring: KeyRing = field(default_factory=KeyRing)
    """The keys that the fleet's datagrams are sealed with."""
    probes: ProbeSpec | None = None
    """None: nobody is probed."""

    @property
    def members(self) -> frozenset[str]:
        """Names of all limiters of the fleet, this one included."""
        return frozenset({self.name, *(peer.name for peer in self.peers)})
