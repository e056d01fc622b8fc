"""The tables of a configuration file, as people write them (docs/configuration.md).

These models know one table each. What must hold between tables is in `drld.config.checks`; what
the rest of drld works with is `drld.spec`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from drld.config.fields import (
    Burst,
    DatapathName,
    Endpoint,
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
)
from drld.units import MEGA

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


class GossipTable(Table):
    """`[gossip]`: how the limiters of the fleet inform each other."""

    fabric: Literal["mesh", "pushsum", "tree"] = "pushsum"
    branching: Annotated[int, Field(ge=1, le=1000)] = 3
    interval: Interval = 50 * MEGA


class PeerTable(Table):
    """`[[peer]]`: another limiter of the fleet."""

    name: Name
    address: Endpoint


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
    burst: Burst
    match: MatchTable
    # A name, or a table of a name and the allocator's own parameters: drld.config.allocator.
    allocator: Any = "fps"
    interval: Interval | None = None
    ewma: Annotated[float, Field(ge=0, lt=1)] = 0.1
    mode: Literal["enforce", "shadow"] = "enforce"
    on_failure: Literal["share", "open", "closed"] | None = None
    shares: dict[str, Share] = Field(default_factory=dict)
