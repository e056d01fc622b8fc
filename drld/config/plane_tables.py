"""The tables that a plane adds to the configuration, and the plane that a limit belongs to.

A limit belongs to the plane that knows most of the keys of its `match`. Its unit does not decide
that, because limits that span planes count bytes.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import NamedTuple

from drld.config.problems import Location, Problems, dotted, known_keys, some
from drld.config.schema import LimitTable, PlaneTable, Table
from drld.planes import registered


class PlaneTables(NamedTuple):
    """The tables of one kind of traffic."""

    key: str
    """The name of the plane's table in a configuration."""
    table: type[PlaneTable]
    limit: type[LimitTable]
    match: type[Table]
    """The table `match` of its limits."""
    element: type[Table] | None = None
    """One of its tables, if a file has an array of them; then `table` has them under `key`."""
    traffic: str = ""
    """The noun for its traffic; empty: the table's name."""
    fabric: str = ""
    """Fabric of a small fleet whose file has such tables, if `[gossip]` names none."""


def planes() -> list[PlaneTables]:
    """The tables of all registered planes."""
    return [module.TABLES for module in registered("tables")]


def plane_of(
    where: Location, limit: Mapping[str, object], problems: Problems
) -> PlaneTables | None:
    """The plane that a limit's table belongs to; None where `problems` now says why there is none.

    With a single plane, all limits are its own.
    """
    match = limit.get("match")
    keys = list(match) if isinstance(match, dict) else []
    known = {plane: known_keys(plane.match, []) for plane in planes()}
    found = {plane: len(set(keys).intersection(its)) for plane, its in known.items()}
    best = [plane for plane, count in found.items() if count == max(found.values())]
    if len(best) == 1:
        return best[0]
    where = [*where, "match"]
    if "match" not in limit:
        problems.add(where, "is required")
    elif not isinstance(match, dict):
        problems.refuse(where, match, "a table")
    else:
        kinds = " or of ".join(
            f"{plane.traffic or plane.key} ({some(its)})" for plane, its in known.items()
        )
        got = some([dotted([key]) for key in keys]) or "none"
        every = [key for its in known.values() for key in its]
        unknown = [key for key in keys if key not in every]
        meant = [close for key in unknown for close in difflib.get_close_matches(key, every, n=1)]
        mean = f'; did you mean "{meant[0]}"?' if meant else ""
        problems.add(where, f"must have the keys of {kinds}{mean} (got {got})")
    return None
