"""An experiment: its groups of flows and its limiters, read from a file of testbed/experiments.

`testbed.experiment_tables` has the keys of the file, and `testbed.experiment_checks` its rules.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from pydantic import ValidationError

from drld.config.problems import Problems
from drld.errors import ConfigError
from testbed import events
from testbed.churn import lives
from testbed.datagrams import UdpGroup, udp_groups
from testbed.events import Event
from testbed.experiment_checks import check
from testbed.experiment_tables import NS_PER_S, START_SPREAD_NS, ExperimentTable, FlowsTable
from testbed.fields import places, spread_out
from testbed.workload import WebGroup, web_groups

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EXPERIMENTS = Path(__file__).resolve().parent / "experiments"


@dataclass(frozen=True, slots=True)
class Group:
    """A group of flows, with all defaults filled in."""

    name: str
    limiter: str
    table: FlowsTable
    lives_ns: tuple[tuple[int, int], ...] = ()
    """Start and end of each flow, if the flows do not live together."""


@dataclass(frozen=True, slots=True)
class Flow:
    """A TCP connection of a group."""

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
    """The groups of long flows."""
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
        # Allocators alternate, so that a change of the machine's speed affects all of them.
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
                start = begin + rng.randrange(START_SPREAD_NS)
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
    check(experiment, problems)
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
