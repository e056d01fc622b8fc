"""Selects the runs of an earlier result that still count when a series is resumed. Pure.

A run counts if it would be measured in the same way today. Its definition, code, datapath, links
and kernel must be today's. The number of runs and the allocators may change, as runs are
independent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

_HOW_MANY = frozenset({"allocators", "repeat", "description"})
"""Keys of a definition that change no run."""
_DECISIVE = {
    "schema": "the format of results",
    "code": "the code of drld or its testbed",
    "setting": "the datapath or the links",
    "kernel": "the kernel",
    "machine": "the machine",
}


class Resumed(NamedTuple):
    """The part of an earlier result that still counts."""

    runs: list[dict[str, Any]]
    discarded: list[dict[str, Any]]
    changed: list[str]
    """Changes of the conditions since then; if there are any, no run counts."""


def resume(earlier: Mapping[str, Any] | None, header: Mapping[str, Any]) -> Resumed:
    """Take over the runs of `earlier` that count for a series with this header."""
    if earlier is None:
        return Resumed([], [], [])
    changed = changes(earlier, header)
    if changed:
        return Resumed([], [], changed)
    runs = [run for run in earlier["runs"] if "disturbances" not in run]
    return Resumed(runs, list(earlier["discarded"]), [])


def changes(earlier: Mapping[str, Any], header: Mapping[str, Any]) -> list[str]:
    """Descriptions of the differences in the way of measuring."""
    # Through JSON, like the earlier header, so that tuples become lists.
    before, now = (
        _keys({
            key: value for key, value in json.loads(json.dumps(result["definition"])).items()
            if key not in _HOW_MANY
        })
        for result in (earlier, header)
    )  # fmt: skip
    keys = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
    found = [f"its definition ({', '.join(keys)})"] if keys else []
    return found + [text for key, text in _DECISIVE.items() if earlier.get(key) != header.get(key)]


def _keys(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of all tables, by their whole path; arrays are values."""
    found: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, Mapping):
            found |= _keys(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found
