"""The changes of the configuration that a running daemon takes over, and what a limit keeps.

Pure, and light to import: `drlctl diff` compares configurations too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from drld.errors import ConfigError
from drld.policy import Policy
from drld.spec import LimiterSpec, PlaneSpec, format_endpoint

FIXED = ("name", "listen", "control", "control_group")
"""Keys of `[limiter]` that only a restart can change; each plane has its own."""


def check(old: LimiterSpec, new: LimiterSpec) -> None:
    """Check that a configuration can follow another while the daemon runs.

    Raises:
        ConfigError: a key changed that only a restart can change.
    """
    planes = dict.fromkeys(type(plane) for plane in (*old.planes, *new.planes))
    before, after = (_fixed(spec, planes) for spec in (old, new))
    problems = [
        f"{key}: cannot change from {_written(before.get(key))} to {_written(after.get(key))} "
        "while the daemon runs: restart it"
        for key in {**before, **after}
        if before.get(key) != after.get(key)
    ]
    if problems:
        raise ConfigError(problems)


def _fixed(spec: LimiterSpec, planes: Iterable[type[PlaneSpec]]) -> dict[str, Any]:
    """The values of the keys that only a restart can change."""
    values = {f"limiter.{key}": getattr(spec, key) for key in FIXED}
    for plane in planes:
        values |= {f"{plane.key}.{key}": it for key, it in spec.plane(plane).fixed().items()}
    values["http.listen"] = spec.http and [format_endpoint(*it) for it in spec.http.listen]
    values["http.page"] = (spec.http and spec.http.page) or None
    return values


def _written(value: Any) -> str:
    """A key's value as a file has it."""
    if isinstance(value, tuple):
        value = format_endpoint(*value)
    return "the default" if value is None else repr(value)


class Difference(NamedTuple):
    """The differences of one table in two configurations."""

    table: str
    """`limiter`, or with a name, as in `limit customer-a`."""
    change: Literal["added", "removed", "changed"]
    keys: Mapping[str, tuple[Any, Any]]
    """The values of each key that differs, in the old and in the new one; None: it is left out."""


def tables(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tables of a valid configuration file, each with the name of its kind."""
    for kind, value in document.items():
        for table in value if isinstance(value, list) else [value]:
            yield kind, table


def differences(
    old: Iterable[tuple[str, Mapping[str, Any]]], new: Iterable[tuple[str, Mapping[str, Any]]]
) -> list[Difference]:
    """The differences between the tables of two configurations, as they are written.

    Limits are compared by `id`, and other tables of an array by `name`. Their order is not
    compared.
    """
    before, after = ({_identity(*it): it for it in its} for its in (old, new))
    found = []
    for identity in {**before, **after}:
        if before.get(identity) == after.get(identity):
            continue  # Most are: to compare the keys of 10,000 limits takes long.
        kind, table = after.get(identity) or before[identity]
        was, now = (_flat(its[identity][1]) if identity in its else {} for its in (before, after))
        keys = {
            key: (was.get(key), now.get(key))
            for key in {**was, **now}
            if was.get(key) != now.get(key)
        }
        change: Literal["added", "removed", "changed"] = "changed"
        if identity not in before or identity not in after:
            change = "added" if identity in after else "removed"
        if keys or change != "changed":
            name = f"{kind} {table['name']}" if isinstance(identity[1], int | str) else kind
            found.append(Difference(name, change, keys))
    return found


def _identity(kind: str, table: Mapping[str, Any]) -> tuple[str, Any]:
    """The identity of a table, which is the same in both configurations."""
    return kind, None if kind == "limiter" else table.get("id" if kind == "limit" else "name")


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a table, with those of inner tables by keys such as `match.out`."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        inner = value if isinstance(value, dict) else None
        flat |= {key: value} if inner is None else {f"{key}.{it}": inner[it] for it in inner}
    return flat


def same_fleet(old: LimiterSpec, new: LimiterSpec) -> bool:
    """Whether two configurations agree in all that limits know of the fleet."""
    fleet = attrgetter("peers", "members", "joined", "gossip", "probes", "ring")
    return bool(fleet(old) == fleet(new))


def knowledge_stays(old: Policy, new: Policy) -> bool:
    """Whether a limit's knowledge still applies under its new policy, with the same fabric."""
    if old is new:
        return True  # Most are: to compare their keys takes longer.
    decisive = attrgetter("unit", "allocator", "parameters", "ewma", "interval_ns", "flow")
    return bool(decisive(old) == decisive(new))
