"""What an operator asks for: the validated, immutable form of the configuration.

`drld.config` makes these from TOML; everything behind it, the pure core included, reads only
these.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network

from drld.gossip.wire.keyring import KeyRing


def format_endpoint(host: str, port: int) -> str:
    """Write an address and a port as the configuration does."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Direction(enum.Enum):
    """Which way a limit's packets cross its interface."""

    IN = "in"
    OUT = "out"


class Mode(enum.Enum):
    """Whether verdicts are carried out or only counted."""

    ENFORCE = "enforce"
    SHADOW = "shadow"


class Excess(enum.Enum):
    """What becomes of packets above the limit."""

    DROP = "drop"
    MARK = "mark"
    """ECN-capable packets are marked (CE, RFC 3168) first, and dropped as the bucket empties."""


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
class SourcePrefix:
    """What makes a flow: all packets whose source addresses agree in so many leading bits."""

    ipv4: int = 32
    ipv6: int = 64
    """One host commonly has the addresses of a /64."""

    def __str__(self) -> str:
        """As the configuration has it."""
        return f"source/{self.ipv4}/{self.ipv6}"


@dataclass(frozen=True, slots=True)
class LimitSpec:
    """One limit as one limiter enforces it."""

    id: int
    """1 to 65535; never reused for another limit while a fleet lives."""
    name: str
    rate: int
    """The global limit, bytes/s."""
    burst: int
    """Depth of the single token bucket that the fleet emulates, bytes; "auto" is resolved."""
    match: Match
    allocator: str
    parameters: object
    """The allocator's own frozen `Parameters` (drld.allocators.base)."""
    interval_ns: int
    """Estimate interval."""
    ewma: float
    """Weight that history one second old keeps, 0 (no filter) to below 1."""
    mode: Mode = Mode.ENFORCE
    on_failure: OnFailure = OnFailure.DEFAULT
    shares: Mapping[str, float] = field(default_factory=dict)
    """Static share of each limiter, summing to 1; empty means 1/N each."""
    burst_is_automatic: bool = False
    """`burst` is `drld.burst.automatic_burst` of the rate."""
    excess: Excess = Excess.DROP
    weights: Mapping[str, float] = field(default_factory=dict)
    """Relative weight of each limiter's flows, above 0 to 1000; limiters not named have 1.
    A flow at a limiter of weight 2 gets twice what a flow at a limiter of weight 1 gets."""
    flow: SourcePrefix | None = None
    """What makes a flow; None: the five-tuple."""
    written: frozenset[str] | None = field(default=None, compare=False)
    """Keys that the operator wrote, `allocator.headroom` among them; None: all. Limiters compare
    only these (drld.shared_settings); the others are what this version of drld chooses."""


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
class LimiterSpec:
    """One daemon."""

    name: str
    listen: tuple[str, int]
    control: str
    """Path of the control socket."""
    datapath: str
    firewall: str
    """`auto`, `nft`, `iptables` or `none` (rules printed for the operator to install)."""
    queue: int | None
    """NFQUEUE number; None picks a free one."""
    timestamps: str
    """When a packet arrived, on the nfqueue datapath: `auto`, `ebpf`, `kernel` or `read`."""
    gossip: GossipSpec
    peers: tuple[PeerSpec, ...]
    limits: tuple[LimitSpec, ...]
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
