"""The tables of an experiment's TOML file, and the bounds of each key.

Units as in drld: rates bytes/s, sizes bytes, times nanoseconds, unless a name says otherwise.
docs/testbed.md explains the network. `testbed.experiment_checks` has rules for several keys.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, model_validator

from drld import units
from drld.allocators import ALLOCATORS
from drld.burst import automatic_burst
from drld.config.fields import Burst, Interval, Rate
from testbed.calls import CallsTable
from testbed.churn import ChurnTable
from testbed.datagrams import UdpTable
from testbed.events import EventTable
from testbed.fields import Duration, PathTable, Places, Probability, Size, Table, duration
from testbed.workload import DemandTable, WebTable

NS_PER_S = 1_000_000_000
STEP_NS = 200_000_000
"""Resolution of a flow's goodput, and of the bounds of its measurement."""

PHANTOM_QUEUES = "bc-pqp"
CENTRAL = {"ctb": "ctb", "crd": "grd", "central-fair": "fair", PHANTOM_QUEUES: "ctb"}
"""The central runs, in which all flows pass one limiter, and drld's allocator for each. They are
the central token bucket, central random drop (GRD), `fair`, and in the simulator alone a phantom
queue for each flow."""
ALLOCATOR_NAMES = tuple(dict.fromkeys([*ALLOCATORS, *CENTRAL]))

START_SPREAD_NS = 20_000_000
"""Flows that start together start at most this far apart, so that they do not move in step."""


def _stepped(value: object) -> int:
    length = duration(value)
    if length % STEP_NS:
        raise ValueError("a multiple of 200ms, the resolution of the goodput")
    return length


def _allocator(value: object) -> str:
    if value not in ALLOCATOR_NAMES:
        raise ValueError(f"one of {', '.join(ALLOCATOR_NAMES)}")
    return str(value)


Stepped = Annotated[int, PlainValidator(_stepped)]
Congestion = Literal["reno", "cubic", "bbr"]
OnFailure = Literal["share", "open", "closed"]
AllocatorName = Annotated[str, PlainValidator(_allocator)]


PAPER: dict[str, dict[str, Any]] = {"grd": {"lead": 0.0, "guard": False}}
"""Parameters that make allocators the paper's, if drld's defaults differ."""


class LimitTable(Table):
    """The global limit."""

    rate: Rate
    burst: Burst
    """The burst; if left out or "auto", the automatic one (`drld.burst`)."""
    ewma: Annotated[float, Field(ge=0, lt=1)] | None = None
    shares: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field(default_factory=dict)
    """Static share of each limiter; empty means the same for each."""
    weights: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """What a flow gets at a limiter, over that at a limiter that is not named."""
    parameters: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Parameters by allocator; `PAPER` has the defaults."""
    on_failure: OnFailure | None = None
    """The fate of a limiter's packets while its daemon is dead."""
    interval: Interval | None = None
    """The estimate interval; None: gossip's interval."""
    excess: Literal["drop", "mark"] | None = None
    """The fate of packets above the limit; None: drld's default."""
    flow: str | None = None
    """The definition of a flow, as in drld's configuration; None: drld's default."""

    @model_validator(mode="before")
    @classmethod
    def _size(cls, values: object) -> object:
        """Fill in the burst; another validator refuses an invalid rate."""
        if not isinstance(values, dict) or values.get("burst", "auto") != "auto":
            return values
        try:
            rate = units.parse_rate(values["rate"])
        except (KeyError, TypeError, units.QuantityError):
            rate = 0
        return {**values, "burst": units.format_size(automatic_burst(rate, units.BYTES))}


class GossipTable(Table):
    """The fabric, and the network between the limiters."""

    fabric: str = "tree"
    branching: Annotated[int, Field(ge=1)] | None = None
    interval: Interval = 50_000_000
    rtt: Duration = 0
    """The round-trip time between limiters."""
    loss: Probability = 0.0
    """The part of the messages between limiters that is lost."""
    jitter: Duration = 0
    """Largest random extra delay of a message; simulator only, as is the next key."""
    duplicate: Probability = 0.0
    known: bool = False
    """Whether every limiter knows all others from the start, without gossip; simulator only."""


class FlowsTable(PathTable):
    """A group of long TCP flows."""

    limiter: Places
    congestion: Congestion = "reno"
    ecn: bool = False
    gso: bool = False
    egress: bool = False
    """Whether the limiter's own host is the sender; testbed only."""
    count: Annotated[int, Field(ge=1, le=10_000)]
    """The flows of the group; they share the bottleneck of `rate` and `queue`."""
    start: Duration = 0
    """The time at which the flows begin, in each period."""
    spread: Annotated[Duration, Field(ge=1)] = START_SPREAD_NS
    """Largest random delay of each flow's start."""
    end: Duration | None = None
    """The time at which the flows end, in each period; None: they do not end."""
    period: Duration | None = None
    """The time after which the flows begin again; None: they do not."""


class ExperimentTable(Table):
    """The top level of an experiment's file."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,40}$")]
    description: str = ""
    seconds: Annotated[float, Field(gt=0, le=3600)]
    """The length of a run, s, with the warm-up."""
    warmup: Stepped = 0
    """The beginning of a run that is not measured."""
    repeat: Annotated[int, Field(ge=1, le=1000)] = 1
    """The runs of each allocator. Run n of all has the same start times and losses."""
    seed: Annotated[int, Field(ge=0)] = 1
    allocators: Annotated[list[AllocatorName], Field(min_length=1)]
    window: Size | None = None
    """The receivers' window; None: the kernel's choice, several megabytes."""
    limiters: list[Places] = Field(default_factory=list)
    detail: Literal["limiters", "fleet"] = "limiters"
    costs: bool = False
    """Whether to measure a limiter's cost; simulator only."""
    limit: LimitTable
    gossip: GossipTable = GossipTable()
    flows: list[FlowsTable] = Field(default_factory=list)
    web: list[WebTable] = Field(default_factory=list)
    udp: list[UdpTable] = Field(default_factory=list)
    calls: CallsTable | None = None
    """Callers at a limiter of their own; testbed only."""
    churn: ChurnTable | None = None
    events: list[EventTable] = Field(default_factory=list)
    demand: list[DemandTable] = Field(default_factory=list)
