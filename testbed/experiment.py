"""An experiment as data: the TOML files of testbed/experiments, validated.

Units as in drld: rates bytes/s, sizes bytes, times nanoseconds, unless a name says otherwise.
docs/testbed.md explains the keys.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, ValidationError, model_validator

from drld import units
from drld.allocators import ALLOCATORS
from drld.burst import automatic_burst
from drld.config.allocator import read_allocator
from drld.config.fields import Burst, Interval, Rate
from drld.config.problems import Problems
from drld.errors import ConfigError
from testbed import events
from testbed.calls import CallsTable
from testbed.churn import ChurnTable, check_churn, lives
from testbed.datagrams import UdpGroup, UdpTable, check_udp, udp_groups
from testbed.events import Event, EventTable
from testbed.fields import (
    LONGEST_NAME,
    Duration,
    PathTable,
    Places,
    Probability,
    Size,
    Table,
    duration,
    places,
    spread_out,
)
from testbed.workload import DemandTable, WebGroup, WebTable, check_web, web_groups

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EXPERIMENTS = Path(__file__).resolve().parent / "experiments"

NS_PER_S = 1_000_000_000
STEP_NS = 200_000_000
"""Resolution of a flow's goodput, and of the bounds of its measurement."""

PHANTOM_QUEUES = "bc-pqp"
CENTRAL = {"ctb": "ctb", "crd": "grd", "central-fair": "fair", PHANTOM_QUEUES: "ctb"}
"""One limiter that all flows pass, and drld's allocator: the central token bucket, central random
drop (GRD), one limiter with `fair`, and in the simulator alone a phantom queue for each flow."""
ALLOCATOR_NAMES = tuple(dict.fromkeys([*ALLOCATORS, *CENTRAL]))

_RESERVED = frozenset({"lo", "out", "ctl", "all", "default"})
_START_SPREAD_NS = 20_000_000
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
    loss: Probability = 0.0
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
    start: Duration = 0
    spread: Annotated[Duration, Field(ge=1)] = _START_SPREAD_NS
    """Largest random delay of each flow's start."""
    end: Duration | None = None
    period: Duration | None = None


class ExperimentTable(Table):
    """The whole file."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,40}$")]
    description: str = ""
    seconds: Annotated[float, Field(gt=0, le=3600)]
    warmup: Stepped = 0
    repeat: Annotated[int, Field(ge=1, le=1000)] = 1
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


@dataclass(frozen=True, slots=True)
class Group:
    """A group of flows, with everything filled in."""

    name: str
    limiter: str
    table: FlowsTable
    lives_ns: tuple[tuple[int, int], ...] = ()
    """Start and end of each flow, if the flows do not live together."""


@dataclass(frozen=True, slots=True)
class Flow:
    """One TCP connection."""

    id: str
    group: str
    limiter: str
    start_ns: int
    """Start of the flow, from the start of the run."""
    end_ns: int


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment that can be run."""

    table: ExperimentTable
    definition: dict[str, Any]
    """The document with all overrides: enough to run the experiment again."""
    groups: tuple[Group, ...]
    """Long flows."""
    web: tuple[WebGroup, ...]
    udp: tuple[UdpGroup, ...]
    limiters: tuple[str, ...]

    @property
    def sources(self) -> tuple[Group | WebGroup, ...]:
        """Every source of TCP traffic."""
        return (*self.groups, *self.web)

    @property
    def runs(self) -> list[tuple[str, int]]:
        """Allocator and repetition of all runs, in their order."""
        # Allocators alternate, so that a change of the machine's mood meets all of them.
        repetitions = range(1, self.table.repeat + 1)
        return [(allocator, each) for each in repetitions for allocator in self.table.allocators]

    @property
    def duration_ns(self) -> int:
        """Length of a run, its warm-up included."""
        return round(self.table.seconds * NS_PER_S)

    @property
    def events(self) -> list[Event]:
        """The events, in the order of time."""
        return events.schedule(self.table.events, self.duration_ns)

    def flows(self, group: Group, rng: Random) -> list[Flow]:
        """The group's connections, each start moved by up to `spread` at random."""
        table = group.table
        period = table.period or self.duration_ns
        found = []
        if group.lives_ns:
            for index, (begin, until) in enumerate(group.lives_ns, 1):
                start = begin + rng.randrange(_START_SPREAD_NS)
                end = min(until, self.duration_ns)
                if start < end:
                    found.append(
                        Flow(f"{group.name}.{index}", group.name, group.limiter, start, end)
                    )
            return found
        for cycle, begin in enumerate(range(0, self.duration_ns, period)):
            end = self.duration_ns if table.end is None else begin + table.end
            for index in range(table.count):
                start = begin + table.start + rng.randrange(table.spread)
                if start < min(end, self.duration_ns):
                    again = f"-{cycle + 1}" if table.period else ""
                    found.append(
                        Flow(
                            f"{group.name}.{index + 1}{again}",
                            group.name,
                            group.limiter,
                            start,
                            min(end, self.duration_ns),
                        )
                    )
        return found


def find(name: str) -> Path:
    """The file of an experiment: a path, or the bare name of one that comes with the testbed."""
    bundled = EXPERIMENTS / f"{name}.toml"
    return bundled if "/" not in name and bundled.is_file() else Path(name)


def load(
    path: Path, overrides: Mapping[str, Any] | None = None, settings: Sequence[str] = ()
) -> Experiment:
    """Read an experiment; `overrides` replace keys of the top level.

    `settings` replace any key of a table, written `gossip.interval=500ms` or `udp.0.rate=2mbit`; a
    value that is not TOML is taken as a string.

    Raises:
        ConfigError: the file is unreadable or has mistakes; one line for each.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: cannot be read: {error}"]) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([f"{path}: not TOML: {error}"]) from error
    document.update(overrides or {})
    for setting in settings:
        _set(document, setting)
    return build(document, str(path))


def _set(document: Any, setting: str) -> None:
    """Apply one `table.key=value`; entries of an array of tables are numbered from 0.

    Raises:
        ConfigError: the setting has another form.
    """
    path, equals, text = setting.partition("=")
    *tables, key = path.split(".")
    if not equals or not all([*tables, key]):
        raise ConfigError([f"{setting!r}: a key and its value such as gossip.interval=500ms"])
    for table in tables:
        place: Any = document.setdefault(table, {}) if isinstance(document, dict) else None
        if isinstance(document, list) and table.isdecimal() and int(table) < len(document):
            place = document[int(table)]
        if not isinstance(place, (dict, list)):
            raise ConfigError([f"{setting!r}: {table} is not a table"])
        document = place
    if not isinstance(document, dict):
        raise ConfigError([f"{setting!r}: {key} is not a key of a table"])
    try:
        document[key] = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        document[key] = text


def build(document: dict[str, Any], file: str) -> Experiment:
    """Validate the document of a file; see `load`."""
    problems = Problems(file)
    try:
        table = ExperimentTable.model_validate(document)
    except ValidationError as error:
        problems.include([], ExperimentTable, error)
        raise ConfigError(problems.lines) from None
    groups = tuple(
        Group(name, limiter, flows)
        for number, flows in enumerate(table.flows, 1)
        for name, limiter in spread_out(flows.name or f"f{number}", flows.limiter)
    )
    web, udp = web_groups(table.web, table.demand), udp_groups(table.udp)
    sources: list[Group | WebGroup | UdpGroup] = [*groups, *web, *udp]
    mentioned = dict.fromkeys(source.limiter for source in sources)
    groups += _churn_groups(table)
    if table.churn is not None:
        mentioned = dict.fromkeys(table.churn.names) | mentioned
    if table.calls is not None:
        mentioned[table.calls.limiter] = None
    limiters = [name for where in table.limiters for name in places(where)] or mentioned
    experiment = Experiment(table, document, groups, web, udp, tuple(limiters))
    _cross_check(experiment, problems)
    if problems.lines:
        raise ConfigError(problems.lines)
    return experiment


def _churn_groups(table: ExperimentTable) -> tuple[Group, ...]:
    """A group for each limiter with flows of `[churn]`."""
    churn = table.churn
    if churn is None:
        return ()
    return tuple(
        Group(
            f"c{limiter[1:]}",
            limiter,
            FlowsTable.model_construct(
                limiter=limiter, count=len(when), rtt=churn.rtt, loss=churn.loss, end=churn.life
            ),
            tuple(when),
        )
        for limiter, when in lives(churn, table.seed).items()
    )


def _cross_check(experiment: Experiment, problems: Problems) -> None:
    """Check rules that concern several keys."""
    table, limiters = experiment.table, experiment.limiters
    if table.warmup >= table.seconds * NS_PER_S:
        left = f"leaves nothing of the {table.seconds:g} seconds to measure"
        problems.add(["warmup"], f"{left} (--set warmup=1s makes it shorter)")
    if round(table.seconds * NS_PER_S) % STEP_NS:
        problems.refuse(["seconds"], table.seconds, "a multiple of 0.2")
    if len(set(limiters)) != len(limiters):
        problems.add(["limiters"], "a name stands there twice")
    if not experiment.sources and not experiment.udp:
        kinds = "[[flows]], [[web]], [[udp]] or [churn]"
        problems.add(["flows"], f"missing: no traffic without {kinds}")
    if table.churn is not None:
        check_churn(table.churn, problems)
    for name, parameters in table.limit.parameters.items():
        read_allocator(["limit", "parameters", name], {**parameters, "name": name}, problems)
    if table.limit.shares and set(table.limit.shares) != set(limiters):
        problems.add(["limit", "shares"], f"needs a share for each of {', '.join(limiters)}")
    _check_sources(experiment, problems)
    _check_calls(experiment, problems)
    for index, flows in enumerate(table.flows):
        where: list[int | str] = ["flows", index]
        if flows.end is not None and flows.end <= flows.start:
            problems.add([*where, "end"], "not after the start")
        if flows.egress and (flows.rtt or flows.loss or flows.rate or flows.gso):
            without = '`rtt = "0s"`, and neither `loss`, `rate` nor `gso`'
            problems.add([*where, "egress"], f"needs {without}: there is no path to the limiter")
        if flows.period is not None and (
            flows.end is None or flows.period < flows.end - flows.start
        ):
            problems.add([*where, "period"], "needs an `end`, and to be as long as the flows live")
    names = [
        source.name
        for source in experiment.sources
        if not isinstance(source, Group) or not source.table.egress
    ]
    check_web(experiment.web, table.demand, experiment.duration_ns, problems)
    check_udp(table.udp, problems)
    events.check(table.events, names, experiment.limiters, experiment.duration_ns, problems)
    for name in {*table.allocators} & {*CENTRAL}:
        if any(event.kill for event in table.events):
            problems.add(["allocators"], f"{name} has no limiter of those that `events` kill")


def _check_sources(experiment: Experiment, problems: Problems) -> None:
    """Check the common rules of groups of flows, web servers and UDP sources."""
    seen: set[str] = set()
    limiters = set(experiment.limiters)
    table = experiment.table
    keys: list[tuple[str, int]] = _keys("flows", table.flows)
    keys += [("churn", index) for index in range(len(keys), len(experiment.groups))]
    keys += [*_keys("web", table.web), *_keys("udp", table.udp)]
    for key, source in zip(keys, (*experiment.sources, *experiment.udp), strict=True):
        if source.limiter not in limiters:
            known = ", ".join(experiment.limiters)
            problems.refuse([*key, "limiter"], source.limiter, f"one of {known}")
        if source.name in seen or source.name in _RESERVED:
            problems.refuse([*key, "name"], source.name, "a name that is not taken")
        if len(source.name) > LONGEST_NAME:
            longest = f"at most {LONGEST_NAME} characters, of which a limiter takes some"
            problems.refuse([*key, "name"], source.name, longest)
        seen.add(source.name)
    for kind, tables in (("flows", table.flows), ("web", table.web)):
        for index, path in enumerate(tables):
            if path.queue is not None and path.rate is None:
                problems.add([kind, index, "queue"], "means nothing without a `rate`")


def _check_calls(experiment: Experiment, problems: Problems) -> None:
    """Check that callers have a limiter of their own, and that what they get can be judged."""
    table, calls = experiment.table, experiment.table.calls
    if calls is None:
        return
    taken = {source.limiter for source in (*experiment.sources, *experiment.udp)}
    if calls.limiter in taken or calls.limiter not in experiment.limiters:
        problems.refuse(["calls", "limiter"], calls.limiter, "a limiter without other traffic")
    if central := [name for name in table.allocators if name in CENTRAL]:
        problems.add(["calls"], f"{central[0]} has one limiter, and packets need another")
    if table.detail != "limiters":
        problems.add(["calls"], 'needs detail = "limiters"')


def _keys(kind: str, tables: Sequence[FlowsTable | WebTable | UdpTable]) -> list[tuple[str, int]]:
    """Key and index of each group of some tables in the file."""
    return [(kind, index) for index, table in enumerate(tables) for _ in places(table.limiter)]
