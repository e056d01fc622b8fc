"""Edits: texts in a limit's table that change only a part of a key's value.

`drlctl limit set` has them. Each edit of `match` is about one field, such as
`topic=city/traffic/#`, and all other fields stay. One without a value, `client=`, takes its field
away. `drld.config.overrides` has the edits of `overrides`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drld.config import overrides


def edited(table: Mapping[str, Any], keys: Mapping[str, Any]) -> Mapping[str, Any]:
    """The keys to be set in a limit's table, after the edits among them.

    Other values stay as they are, and the validation of the table judges them.
    """
    return overrides.edited(table, _with_match(table.get("match", {}), keys))


def _with_match(match: object, keys: Mapping[str, Any]) -> Mapping[str, Any]:
    """The keys with the whole `match` after its edits."""
    edits = keys.get("match")
    if not isinstance(edits, list) or not isinstance(match, Mapping):
        return keys
    if not all(isinstance(it, str) and "=" in it for it in edits):
        return keys
    given = dict(it.split("=", 1) for it in edits)
    fields = {key: value for key, value in {**match, **given}.items() if value != ""}
    return {**keys, "match": fields}
