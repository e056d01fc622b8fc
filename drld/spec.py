"""The configuration of one daemon, validated and immutable.

`drld.config` makes these from TOML; everything behind it reads only these. A limit is a policy
(`drld.policy`) and its target, `match`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from drld.gossip.wire.keyring import KeyRing
from drld.policy import Policy

if TYPE_CHECKING:
    from ssl import SSLContext

P = TypeVar("P", bound="PlaneSpec")


def format_endpoint(host: str, port: int) -> str:
    """Write an address and a port as the configuration does."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class OnFailure(enum.Enum):
    """The treatment of a limit's traffic while the daemon is dead."""

    DEFAULT = "default"
    """The file does not say: the static share on the kernel datapath, no packet on nfqueue."""
    SHARE = "share"
    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Target:
    """Which traffic falls under a limit on this host. Its text is for lists.

    Each plane has a subclass; only that plane reads what is in it.
    """

    items: ClassVar[str]
    """The plural noun for its items: `packets`."""
    flow: ClassVar[str]
    """The definition of a flow for limits whose policy has none."""

    def written(self) -> dict[str, str]:
        """The keys of `match` with their values, as people write them."""
        values = ((key.name, getattr(self, key.name)) for key in fields(self))
        return {name: str(value) for name, value in values if value is not None}

    def data(self) -> dict[str, Any]:
        """The keys of `match` as values of JSON."""
        return {**self.written()}

    def on_host(self, interfaces: Mapping[str, str]) -> Target:  # noqa: ARG002 -- for packets
        """The target on this host, which may call the fleet's interfaces by other names."""
        return self


@dataclass(frozen=True, slots=True)
class LimitSpec:
    """One limit as one limiter enforces it: a policy and its target."""

    policy: Policy
    match: Target
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
    """Length of a round, ns; also the period of the daemon's tick."""
    written: frozenset[str] | None = field(default=None, compare=False)
    """Keys that the operator wrote; None: all."""


@dataclass(frozen=True, slots=True)
class RegistrySpec:
    """The fleet's registry in etcd (docs/registry.md)."""

    endpoints: tuple[str, ...]
    """URLs of etcd servers of one cluster; they are tried in this order."""
    fleet: str
    ttl_ns: int
    """Time for which this limiter counts as alive after etcd heard from it last."""
    cache: str
    """Path of the file that keeps what the registry said last."""
    user: str | None = None
    password_file: str | None = None
    ca: str | None = None
    """Path of the certificates to trust (PEM); None: those of the system."""
    cert: str | None = None
    key: str | None = None
    interfaces: Mapping[str, str] = field(default_factory=dict)
    """This host's interface names, by the names that the fleet's limits use."""
    forget_after_ns: int | None = None
    """Time after which a member that is gone is removed; None: only operators remove members."""


class ServerTls(NamedTuple):
    """The certificate of a server, from files as they were when the configuration was read."""

    context: SSLContext
    expires: float
    """Unix time at which the certificate does."""


@dataclass(frozen=True, slots=True)
class HttpSpec:
    """Addresses on which other hosts may read figures."""

    listen: tuple[tuple[str, int], ...]
    tls: ServerTls | None = field(default=None, compare=False)
    """The server's certificate; None: no TLS."""
    page: bool = False
    """Whether they show the page, too."""


@dataclass(frozen=True, slots=True)
class ProbeSpec:
    """The settings of probes (drld.gossip.health.probes); the defaults suit a LAN."""

    period_ns: int = 1_000_000_000
    """Each limiter probes one other in this time."""
    timeout_ns: int = 500_000_000
    """Time to wait for an answer before helpers probe as well."""
    helpers: int = 3
    """Number of limiters that are asked to probe a silent peer, too."""
    suspicion: float = 4.0
    """Periods that a suspicion and its refutation take through a fleet of ten."""
    suspicion_max: float = 6.0
    """Factor of `suspicion`, for a suspicion that no other limiter confirms."""
    isolation: int = 5
    """Periods without any answer after which a limiter takes itself for cut off."""
    retransmissions: int = 4
    """Number of times that each limiter passes a rumour on, in a fleet of nine."""
    patience: int = 8
    """Factor less one by which a limiter that runs late waits longer, at the most."""


@dataclass(frozen=True, slots=True)
class PlaneSpec:
    """The settings of a plane's own table in the configuration.

    Each plane has a subclass, with a default for every key of the table.
    """

    key: ClassVar[str]
    """Name of the table."""

    @property
    def serves(self) -> bool:
        """Whether this daemon has clients of the plane, whose limits need no datapath."""
        return False

    def fixed(self) -> Mapping[str, Any]:
        """The values of the keys that only a restart can change: all, unless a plane says less."""
        return {key.name: getattr(self, key.name) for key in fields(self)}


@dataclass(frozen=True, slots=True)
class LimiterSpec:
    """The whole configuration of one daemon."""

    name: str
    listen: tuple[str, int]
    control: str
    """Path of the control socket."""
    gossip: GossipSpec
    peers: tuple[PeerSpec, ...]
    limits: tuple[LimitSpec, ...]
    planes: tuple[PlaneSpec, ...] = ()
    """The settings of each plane; a plane that is left out has its defaults."""
    control_group: str | int | None = None
    """Group that may open the control socket, besides the daemon's user; None: the daemon's own
    group."""
    registry: RegistrySpec | None = None
    joined: bool = True
    """False: some of the fleet may not count this limiter yet. It then takes no part in gossip, so
    that it enforces its static share."""
    ring: KeyRing = field(default_factory=KeyRing)
    """The keys that seal and open the fleet's datagrams."""
    probes: ProbeSpec | None = None
    """The settings of probes; None: this limiter neither probes nor answers."""
    http: HttpSpec | None = None
    """Addresses for other hosts; None: only the control socket shows figures."""

    @property
    def members(self) -> frozenset[str]:
        """Names of all limiters of the fleet, this one included."""
        return frozenset({self.name, *(peer.name for peer in self.peers)})

    def plane(self, kind: type[P]) -> P:
        """The settings of a plane, by their type."""
        return next((plane for plane in self.planes if isinstance(plane, kind)), kind())
