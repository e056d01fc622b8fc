"""The tables of a configuration file, as people write them (docs/configuration.md).

Each model knows one table. `drld.config.checks` has the rules between tables, and `drld.spec` what
the rest of drld reads. `drld.config.reference` makes the reference from the docstrings below. A
model's docstring has the heading and the introduction of its table. A key's docstring has its
meaning, and its default if the code has none ("Default: ...").
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from drld.allocators import DEFAULT_ALLOCATOR
from drld.config.fields import (
    Absence,
    Endpoint,
    EtcdUrl,
    FilePath,
    Group,
    Interface,
    Interval,
    Kind,
    Listen,
    Name,
    SocketPath,
    TimeToLive,
    Weight,
)
from drld.config.problems import Location, Problems
from drld.spec import PlaneSpec, Target
from drld.units import GIGA, MEGA, Unit

Share = Annotated[float, Field(ge=0, le=1)]


class Table(BaseModel):
    """A TOML table: unknown keys are mistakes, and nothing is converted by guesswork."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class LimiterTable(Table):
    """`[limiter]`: this daemon.

    A change of this table takes effect when the daemon restarts.
    """

    name: Name
    """Name of this limiter, unique in the fleet."""
    listen: Endpoint
    """Address for gossip: the daemon binds exactly this address, and its peers send to it."""
    control: SocketPath | None = None
    """Path of the control socket (docs/control-api.md). Default: `/run/drld/NAME.sock`; where that
    cannot be written, `$XDG_RUNTIME_DIR/drld/NAME.sock`."""
    control_group: Group | None = None
    """Group that may use the control socket, beside root and the daemon's user
    (docs/operations.md#the-control-socket). Default: the daemon's group."""


class KeyTable(Table):
    """`keys`: the keys of the fleet.

    A key's id and file are the same on all limiters (docs/security.md).
    """

    id: Annotated[int, Field(ge=1, le=3)]
    """Number by which datagrams name the key."""
    file: FilePath
    """File with 16 to 32 random bytes in hexadecimal digits or base64, as `drlctl keys generate`
    makes it; only its owner may write it, and only owner and group may read it."""


class HttpTable(Table):
    """`[http]`: figures for other hosts.

    The daemon answers `GET /metrics` on these addresses (docs/metrics.md), and nothing that changes
    it. The table may be left out.
    """

    listen: Listen
    """Such as `"127.0.0.1:9617"`; `0.0.0.0` and `[::]` are all addresses of a family. A change
    takes effect when the daemon restarts."""
    certificate: FilePath | None = None
    """Certificate for TLS, and its chain (PEM); needs `key`. A reload reads all files again.
    Default: no TLS."""
    key: FilePath | None = None
    """Private key (PEM), which other users may not read. Default: no TLS."""
    client_ca: FilePath | None = None
    """Certificates (PEM) of authorities: clients need a certificate of one. Default: any client
    may read."""
    page: bool = False
    """Whether to show the page (docs/operations.md#the-page); needs `certificate` or loopback
    addresses, and a restart."""


class GossipTable(Table):
    """`[gossip]`: how the limiters inform each other.

    The same on all limiters of a fleet. The table may be left out.
    """

    fabric: Literal["mesh", "pushsum", "tree"] | None = None
    """Which limiters send to which (docs/operations.md#choose-a-fabric). Default: `"tree"`; with
    `[[broker]]` and up to 30 limiters `"mesh"`."""
    branching: Annotated[int, Field(ge=1, le=1000)] = 3
    """Number of neighbours in a tree, about, or of peers that `pushsum` sends to in a round."""
    interval: Interval = 50 * MEGA
    """Length of a round, and default of each limit's `interval`; at least the longest one-way delay
    between limiters (docs/conservative-rule.md)."""
    keys: Annotated[list[KeyTable], Kind("array of tables, up to 3")] = Field(default_factory=list)
    """Keys that authenticate datagrams; without one, any host that reaches the port can forge
    updates. Default: none."""
    use: Annotated[int, Field(ge=0, le=3)] | None = None
    """Id of the key for what this limiter sends; 0 is no key. Default: the only key's `id`."""
    tag: Literal[4, 8, 16] = 4
    """Length of an update's tag in bytes (docs/security.md)."""
    accept_unauthenticated: bool = False
    """Whether datagrams without a key are accepted: only while a fleet introduces keys."""


class ProbesTable(Table):
    """`[probes]`: who is alive.

    The same on all limiters of a fleet. The table may be left out. N is the number of limiters;
    [below](#how-soon-a-death-is-noticed) is what P, R and Q mean together. No value makes a fleet
    exceed its limits: verdicts are for `drlctl`, the log, and a tree that looks for a parent.
    """

    profile: Literal["lan", "wan", "off"] = "lan"
    """Defaults of the keys below; `"off"` neither probes nor answers, so set it on all limiters or
    on none."""
    period: Interval | None = None
    """P: each limiter probes one other per period; at least twice the `timeout`."""
    timeout: Interval | None = None
    """Wait for an answer before helpers probe too: more than the round-trip time and two intervals;
    drld waits for at least 4 intervals."""
    helpers: Annotated[int, Field(ge=0, le=20)] | None = None
    """Number of other limiters that probe a silent one too."""
    suspicion: Annotated[float, Field(ge=1, le=100)] | None = None
    """Factor of R = `suspicion` P max(1, log10 N), the time for a suspicion to reach its subject,
    and for the refutation to reach all."""
    suspicion_max: Annotated[float, Field(ge=1, le=100)] | None = None
    """Factor of R for a suspicion that no other limiter confirms."""
    isolation: Annotated[int, Field(ge=3, le=100)] | None = None
    """Factor of Q = `isolation` P: a limiter without any answer for Q takes itself for cut off,
    until it has had answers for R."""
    retransmissions: Annotated[int, Field(ge=1, le=20)] | None = None
    """Each limiter passes a rumour on ceil(`retransmissions` log10(N + 1)) times."""
    patience: Annotated[int, Field(ge=0, le=20)] | None = None
    """A limiter that runs late or loses answers waits up to 1 + `patience` times as long."""


class PeerTable(Table):
    """`[[peer]]`: another limiter of the fleet.

    One table for each limiter but this one. Without any, and without `[registry]`, this limiter is
    alone.
    """

    name: Name
    """The peer's `name`."""
    address: Endpoint
    """The peer's `listen`: of the same address family as this limiter's, and loopback only if this
    limiter's is."""


class RegistryTable(Table):
    """`[registry]`: a list of the fleet in etcd.

    With this table, limiters and limits come and go in etcd, and `[[peer]]` and `[[limit]]` may be
    left out (docs/registry.md). Limits and peers in the file are this host's own, and the file wins
    over etcd. A peer that has registered with the address in the file is no conflict. `shares` then
    need not name every limiter (one without a share has 0), the names in `weights` are not checked,
    and `ctb` is an error. A change of this table takes effect when the daemon restarts.
    """

    endpoints: Annotated[list[EtcdUrl], Field(min_length=1, max_length=16)]
    """Servers of one etcd cluster, 3.3 or later, such as `"https://etcd1:2379"`; one is used at a
    time."""
    fleet: Name
    """Name of the fleet; its keys in etcd begin with `/drld/FLEET/`."""
    ttl: TimeToLive = 10 * GIGA
    """Time without news for which a limiter counts as alive: decides when a silent etcd server is
    left, and what `drlctl fleet` shows, and no share."""
    user: Annotated[str, Field(min_length=1, max_length=256), Kind("text")] | None = None
    """Name for etcd's authentication, 1 to 256 characters; needs `password_file`. Default: none."""
    password_file: FilePath | None = None
    """File with the password on one line; needs `user`. Default: none."""
    ca: FilePath | None = None
    """Certificates (PEM) to trust, for `https`. Default: the system's."""
    cert: FilePath | None = None
    """Client certificate (PEM); needs `key`. Default: none."""
    key: FilePath | None = None
    """Private key (PEM) of the certificate; needs `cert`. Default: none."""
    interfaces: Annotated[dict[Interface, Interface], Field(max_length=1000)] = Field(
        default_factory=dict
    )
    """This host's names for interfaces of the fleet's limits, such as `{ uplink = "eth1" }`; other
    names are used as they are. Default: none."""
    forget_after: Absence | None = None
    """Remove members that etcd has not heard from for this time, which is above `ttl`
    (docs/registry.md has the risk). Default: never."""
    cache: FilePath | None = None
    """File with the registry's last state, for a start while etcd is away. Default:
    `/var/lib/drld/NAME.registry.json`."""


class LimitTable(Table):
    """`[[limit]]`: a policy with a global rate.

    One table for each. A file without limits has `limit = []` before its first table. The keys of
    `match` say what kind of traffic it is about, and so which further keys there are. The limiters
    of a fleet must agree on `rate`, `burst`, `allocator`, `interval`, `excess`, `shares`,
    `weights`, and what makes a flow; if two files differ, `drlctl status` and the log of both
    limiters name the limit.
    """

    # Each plane has a subclass, which says what the keys without a docstring may be.
    id: Annotated[int, Field(ge=1, le=65535)]
    """Number of the limit on the wire: the same on all limiters, and never reused while the fleet
    lives."""
    name: Name
    """Name of the limit, unique in the file."""
    unit: Unit
    # After the unit, which decides how they are written.
    rate: int
    burst: int | Literal["auto"]
    match: Table
    # `drld.config.allocator` reads it.
    allocator: Annotated[Any, Kind("name, or table of `name` and parameters")] = DEFAULT_ALLOCATOR
    """How the rate is divided ([below](#allocator-how-the-rate-is-divided))."""
    interval: Interval | None = None
    """Estimate interval: how often demand is measured and the local limit set
    (docs/operations.md#choose-the-intervals). Default: `gossip.interval`."""
    # Nearer to 1, the share of a new sample rounds to 0, and the mean is 0 / 0.
    ewma: Annotated[float, Field(ge=0, le=0.999)] = 0.1
    """Weight that history one second old keeps in the demand; 0 is no filter. `fair` shows this
    demand, and decides by filters of its own."""
    mode: Literal["enforce", "shadow", "pause"] = "enforce"
    """`"shadow"` counts what it would drop, and drops nothing; `"pause"` lets all pass."""
    on_failure: str | None
    excess: str
    shares: dict[str, Share] = Field(default_factory=dict)
    """Static share of each limiter, by name, in force at start and while peers are disconnected;
    names every limiter and sums to 1. Default: the same for all."""
    weights: dict[Name, Weight] = Field(default_factory=dict)
    """Relative weight of a limiter's flows, by name: with 2, a flow gets twice the rate of a flow
    at a limiter of weight 1. Default: 1 for each."""

    @property
    def default_allocator(self) -> str | None:
        """The allocator of a limit without the key; None: that of all planes."""
        return None

    @abstractmethod
    def target(self) -> Target:
        """Return the traffic that falls under the limit."""

    def policy(self) -> Mapping[str, Any]:
        """Fields of `Policy` that limits of other planes do not have."""
        return {}

    def check(self, where: Location, problems: Problems) -> None:
        """See that the limit's own keys go together."""

    def check_members(self, where: Location, members: int, problems: Problems) -> None:
        """See that it goes with a fleet of so many limiters."""


class PlaneTable(Table):
    """A table of a plane, which may be left out; or all of them, where there may be several."""

    @abstractmethod
    def spec(self) -> PlaneSpec:
        """Return the plane's part of the daemon's configuration."""

    def check(self, limits: Mapping[int, Any], problems: Problems) -> None:
        """See that it goes with the plane's limits, which are given by their place in the file."""
