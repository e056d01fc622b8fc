"""The tables of a configuration file, as people write them (docs/configuration.md).

These models know one table each. What must hold between tables is in `drld.config.checks`; what
the rest of drld works with is `drld.spec`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from drld.allocators import DEFAULT_ALLOCATOR
from drld.config.fields import (
    Absence,
    BurstOrAuto,
    DatapathName,
    Endpoint,
    EtcdUrl,
    FilePath,
    FlowDefinition,
    Group,
    Interface,
    Interval,
    Mark,
    Name,
    Ports,
    Prefix,
    Protocol,
    Rate,
    SocketPath,
    TimeToLive,
    Weight,
)
from drld.units import GIGA, MEGA

Share = Annotated[float, Field(ge=0, le=1)]


class Table(BaseModel):
    """A TOML table: unknown keys are mistakes, and nothing is converted by guesswork."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class LimiterTable(Table):
    """`[limiter]`: this daemon."""

    name: Name
    listen: Endpoint
    control: SocketPath | None = None
    control_group: Group | None = None
    datapath: DatapathName = "auto"
    firewall: Literal["auto", "nft", "iptables", "none"] = "auto"
    queue: Annotated[int, Field(ge=0, le=65535)] | None = None
    timestamps: Literal["auto", "ebpf", "kernel", "read"] = "auto"


class KeyTable(Table):
    """`[gossip] keys`: one key of the fleet."""

    id: Annotated[int, Field(ge=1, le=3)]
    file: FilePath


class GossipTable(Table):
    """`[gossip]`: how the limiters of the fleet inform each other."""

    fabric: Literal["mesh", "pushsum", "tree"] = "tree"
    branching: Annotated[int, Field(ge=1, le=1000)] = 3
    interval: Interval = 50 * MEGA
    keys: list[KeyTable] = Field(default_factory=list)
    use: Annotated[int, Field(ge=0, le=3)] | None = None
    tag: Literal[4, 8, 16] = 4
    accept_unauthenticated: bool = False


class ProbesTable(Table):
    """`[probes]`: how the limiters find out who is alive; None is the profile's."""

    profile: Literal["lan", "wan", "off"] = "lan"
    period: Interval | None = None
    timeout: Interval | None = None
    helpers: Annotated[int, Field(ge=0, le=20)] | None = None
    suspicion: Annotated[float, Field(ge=1, le=100)] | None = None
    suspicion_max: Annotated[float, Field(ge=1, le=100)] | None = None
    isolation: Annotated[int, Field(ge=3, le=100)] | None = None
    retransmissions: Annotated[int, Field(ge=1, le=20)] | None = None
    patience: Annotated[int, Field(ge=0, le=20)] | None = None


class PeerTable(Table):
    """`[[peer]]`: another limiter of the fleet."""

    name: Name
    address: Endpoint


class RegistryTable(Table):
    """`[registry]`: where the fleet's limiters and limits are listed."""

    endpoints: Annotated[list[EtcdUrl], Field(min_length=1, max_length=16)]
    fleet: Name
    ttl: TimeToLive = 10 * GIGA
    user: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    password_file: FilePath | None = None
    ca: FilePath | None = None
    cert: FilePath | None = None
    key: FilePath | None = None
    interfaces: Annotated[dict[Interface, Interface], Field(max_length=1000)] = Field(
        default_factory=dict
    )
    forget_after: Absence | None = None
    cache: FilePath | None = None


class MatchTable(Table):
    """`match`: which packets fall under a limit."""

    in_: Annotated[Interface | None, Field(alias="in")] = None
    out: Interface | None = None
    source: Prefix | None = None
    destination: Prefix | None = None
    protocol: Protocol | None = None
    source_port: Ports = ()
    destination_port: Ports = ()
    mark: Mark | None = None


class LimitTable(Table):
    """`[[limit]]`: a policy with a global rate."""

    id: Annotated[int, Field(ge=1, le=65535)]
    name: Name
    rate: Rate
    burst: BurstOrAuto = "auto"
    match: MatchTable
    # A name, or a table of a name and the allocator's own parameters: drld.config.allocator.
    allocator: Any = DEFAULT_ALLOCATOR
    interval: Interval | None = None
    ewma: Annotated[float, Field(ge=0, lt=1)] = 0.1
    mode: Literal["enforce", "shadow"] = "enforce"
    on_failure: Literal["share", "open", "closed"] | None = None
    excess: Literal["drop", "mark"] = "drop"
    shares: dict[str, Share] = Field(default_factory=dict)
    weights: dict[Name, Weight] = Field(default_factory=dict)
    flow: FlowDefinition = None
