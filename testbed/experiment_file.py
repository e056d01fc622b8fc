"""Reads an experiment from a file of testbed/experiments.

`testbed.experiment_tables` has the keys of the file, and `testbed.experiment_checks` its rules.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from drld.config.problems import Problems
from drld.errors import ConfigError
from testbed.churn import lives
from testbed.datagrams import UdpGroup, udp_groups
from testbed.experiment import Experiment, Group
from testbed.experiment_checks import check
from testbed.experiment_tables import ExperimentTable, FlowsTable
from testbed.fields import places, spread_out
from testbed.workload import WebGroup, web_groups

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EXPERIMENTS = Path(__file__).resolve().parent / "experiments"


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
