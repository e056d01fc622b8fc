"""Layers of limits: what drop-in files and changes at run time make of a file's `[[limit]]` tables.

A layer is a list of `[[limit]]` tables. A table changes the keys that it has of the limit with its
`id`, or adds a limit if there is none. With `remove = true` it removes one. It may repeat the
limit's `name`, and not change it: what was written for one limit never falls upon another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drld.config.problems import Origin, Problems, show

REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Layer:
    """The `[[limit]]` tables of one source, such as a drop-in file."""

    source: str
    """Path of the file; empty for a change at run time."""
    limits: Sequence[Any]


def merge(limits: list[Any], layers: Sequence[Layer], problems: Problems) -> list[Any]:
    """The tables of a file after all layers; `problems` then knows the file of each key."""
    tables: list[Any] = [*limits]
    origins: list[Origin] = [{None: (problems.file, index)} for index in range(len(limits))]
    places = {limit_id: index for index, table in enumerate(tables) if (limit_id := id_of(table))}
    removed: set[int] = set()
    for layer in layers:
        theirs = Problems(layer.source)
        seen: set[int] = set()
        for index, change in enumerate(layer.limits):
            limit_id = _checked(change, index, seen, theirs)
            if limit_id is None:
                continue
            seen.add(limit_id)
            place = places.get(limit_id)
            if place is None:
                if REMOVE not in change:
                    places[limit_id] = len(tables)
                    tables.append(change)
                    origins.append({None: (layer.source, index)})
                continue
            table = tables[place]
            if (name := change.get("name", table.get("name"))) != table.get("name"):
                file, _ = origins[place][None]
                known = f"the name of limit {limit_id} in {file}, {show(table.get('name'))}"
                theirs.refuse(["limit", index, "name"], name, known)
            elif REMOVE in change:
                del places[limit_id]
                removed.add(place)
            else:
                tables[place] = {**table, **change}
                origins[place] = {**origins[place], **dict.fromkeys(change, (layer.source, index))}
        problems.lines += theirs.lines
    kept = [place for place in range(len(tables)) if place not in removed]
    problems.origins = [origins[place] for place in kept]
    return [tables[place] for place in kept]


def id_of(table: object) -> int | None:
    """The id in a `[[limit]]` table; None if it has none that may be one."""
    found = table.get("id") if isinstance(table, dict) else None
    return found if type(found) is int and found > 0 else None


def _checked(change: Any, index: int, seen: set[int], problems: Problems) -> int | None:
    """The id of the limit that a table of a layer is about; None if the table has a mistake."""
    where: list[int | str] = ["limit", index]
    limit_id = id_of(change)
    if not isinstance(change, dict):
        problems.refuse(where, change, "a table")
    elif "id" not in change:
        problems.add([*where, "id"], "is required")
    elif limit_id is None:
        problems.refuse([*where, "id"], change["id"], "an integer from 1 to 65535")
    elif limit_id in seen:
        problems.refuse([*where, "id"], limit_id, "unique in its file")
    elif REMOVE in change and not _removes(change):
        problems.add([*where, REMOVE], "must be true, and have no other keys beside id and name")
    else:
        return limit_id
    return None


def _removes(change: Mapping[str, object]) -> bool:
    """Whether a table does nothing but remove a limit."""
    return change[REMOVE] is True and not change.keys() - {"id", "name", REMOVE}
