"""The tables `[[limit]]` of a configuration."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from pydantic import ValidationError

from drld.allocators import DEFAULT_ALLOCATOR
from drld.burst import automatic_burst
from drld.config.allocator import read_allocator
from drld.config.checks import (
    check_alone,
    check_fabric,
    check_limiters,
    check_shares,
    check_sum,
)
from drld.config.plane_tables import plane_of, planes
from drld.config.problems import Location, Problems, must_be
from drld.config.schema import LimitTable
from drld.config.sections import read_table
from drld.errors import ConfigError
from drld.policy import NOTHING, Mode, Policy
from drld.spec import LimitSpec, OnFailure

DEFAULT_FABRIC = "tree"
COMMON_KEYS = ("id", "name", "interval", "ewma", "mode", "shares", "weights")
"""Keys of a limit with the same rules in all planes."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The facts that a limit needs of the other tables of its file."""

    size: int
    """Limiters; with a registry, which may have any number, one more than the file names."""
    members: frozenset[str] | None
    """Names of all limiters; None if some of them have mistakes."""
    interval_ns: int
    """Estimate interval of a limit without its own."""
    open: bool
    """Whether there may be members that the file does not name."""
    fabric: str = DEFAULT_FABRIC


def read_limit(value: object, source: str, interval_ns: int) -> LimitSpec:
    """Validate one limit of a fleet with unknown members; `source` names it in messages.

    Shares may name limiters that are no members, and a member without a share has 0.
    `interval_ns` is the estimate interval of a limit without its own.

    Raises:
        ConfigError: the limit has mistakes; `problems` has a line for each mistake.
    """
    problems = Problems(source)
    spec = None
    if isinstance(value, dict):
        table = limit_table([], value, problems)
        spec = limit_spec([], value, table, Fleet(2, None, interval_ns, open=True), problems)
    else:
        problems.lines.append(f"{source}: {must_be('a table', value)}")
    if problems.lines or spec is None:
        raise ConfigError(problems.lines)
    return spec


def limit_table(where: Location, value: object, problems: Problems) -> LimitTable | None:
    """Read the table of a limit by the rules of its plane; None if it has a mistake."""
    if not isinstance(value, dict):
        problems.refuse(where, value, "a table")
        return None
    plane = plane_of(where, value, problems)
    if plane is None:
        _check_common_keys(where, value, problems)
        return None
    return read_table(plane.limit, where, value, problems)


def _check_common_keys(where: Location, value: dict[str, object], problems: Problems) -> None:
    """Check the keys of a limit of no plane that have the same rules in all planes."""
    any_plane = planes()[0].limit
    try:
        any_plane.model_validate(value)
    except ValidationError as error:
        problems.include(where, any_plane, error, only=COMMON_KEYS)


def limit_spec(
    where: Location, written: object, table: LimitTable | None, fleet: Fleet, problems: Problems
) -> LimitSpec | None:
    """Check one limit against the other tables of its file; None if it has a mistake."""
    if not isinstance(written, dict):
        return None
    default = (table and table.default_allocator) or DEFAULT_ALLOCATOR
    allocator = read_allocator([*where, "allocator"], written.get("allocator", default), problems)
    if allocator:
        check_alone([*where, "allocator"], allocator[0], fleet.size, problems)
        check_fabric([*where, "allocator"], allocator[0], fleet.fabric, problems)
    if table is None:
        return None
    table.check(where, problems)
    if fleet.open:
        check_sum([*where, "shares"], table.shares, problems)
    elif fleet.members is not None:
        check_shares([*where, "shares"], table.shares, fleet.members, problems)
        check_limiters([*where, "weights"], table.weights, fleet.members, problems)
        table.check_members(where, len(fleet.members), problems)
    if allocator is None:
        return None
    policy = Policy(
        id=table.id,
        name=table.name,
        rate=table.rate,
        burst=automatic_burst(table.rate, table.unit) if table.burst == "auto" else table.burst,
        allocator=allocator[0],
        parameters=allocator[1],
        interval_ns=table.interval or fleet.interval_ns,
        ewma=table.ewma,
        mode=Mode(table.mode),
        shares=table.shares or NOTHING,
        burst_is_automatic=table.burst == "auto",
        weights=table.weights or NOTHING,
        unit=table.unit,
        written=_one_of(_written(written)),
        **table.policy(),
    )
    return LimitSpec(policy, table.target(), OnFailure(table.on_failure or "default"))


def _written(table: dict[str, object]) -> frozenset[str]:
    """The keys of a limit's table and of its inner tables, such as `match.out`."""
    tables = [(key, it) for key in ("allocator", "match") if isinstance(it := table.get(key), dict)]
    return frozenset([*table, *(f"{key}.{inner}" for key, it in tables for inner in it)])


@lru_cache(maxsize=256)
def _one_of(keys: frozenset[str]) -> frozenset[str]:
    """The first set with these keys, as ten thousand limits have few different ones."""
    return keys
