"""`overrides` of a limit's table: what is different for single keys, as tables or as texts.

`drlctl` has texts, such as `user=bigco,rate=1000/s`. Where an existing limit is changed, texts are
edits: each is about one key, and all others stay. A text that has the names of `match.per` alone
takes the override of its key away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

AMOUNTS = ("rate", "burst")
"""Keys whose values an override may change; all other keys of its table name the bucket's key."""


def table_of(text: str) -> dict[str, str] | None:
    """The table that a text stands for; None: the text is no list of NAME=VALUE."""
    pairs = [part.partition("=") for part in text.split(",")]
    found = {name.strip(): value.strip() for name, equals, value in pairs if equals}
    return found if len(found) == len(pairs) else None


def edited(table: Mapping[str, Any], keys: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keys to be set in a limit's table, with its overrides after the edits among them.

    Other values stay as they are, and the validation of the table judges them.
    """
    edits = keys.get("overrides")
    if not isinstance(edits, list) or not edits or not all(isinstance(it, str) for it in edits):
        return keys
    changes, known = map(_tables, (edits, table.get("overrides", [])))
    if changes is None or known is None:
        return keys
    found = {_key(it): it for it in known}
    per = _per({**table, **keys}.get("match"))
    for change in changes:
        key = _key(change)
        found.pop(key, None)
        # One with another name is a mistake, which the validation names.
        if change.keys() != per:
            found[key] = change
    return {**keys, "overrides": [*found.values()]}


def _per(match: object) -> set[str]:
    """The names of `match.per`: a name, several with commas, or an array."""
    per = match.get("per", []) if isinstance(match, Mapping) else []
    names = per.split(",") if isinstance(per, str) else per
    return {it for it in names if isinstance(it, str)} if isinstance(names, list) else set()


def _tables(overrides: object) -> list[Mapping[str, Any]] | None:
    """Overrides as tables; None: they are none."""
    if not isinstance(overrides, list):
        return None
    read = (table_of(it) if isinstance(it, str) else it for it in overrides)
    found = [it for it in read if isinstance(it, Mapping)]
    return found if len(found) == len(overrides) else None


def _key(override: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    """The key of the bucket that an override is about."""
    return frozenset((name, str(it)) for name, it in override.items() if name not in AMOUNTS)
