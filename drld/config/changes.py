"""Changes of limits while the daemon runs: those that last until it restarts, and saved ones.

The limits in force are those of the files, with the unsaved changes over them. To save a change is
to write it into a drop-in, `99-drlctl.toml`; nothing else writes that file, and drld writes no
other. A change names the keys that it is about, so that the others stay as the files have them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal

from drld.config import Files, drop_ins, parsed, read
from drld.config.atomic_file import write_beside
from drld.config.edits import edited
from drld.config.layers import REMOVE, Layer, id_of
from drld.config.problems import Problems, must_be
from drld.config.toml_text import toml
from drld.errors import ConfigError
from drld.spec import LimiterSpec, LimitSpec

SAVED = "99-drlctl.toml"
_UNSAVED = "an unsaved change"
"""Source of a key that no file has, for error messages."""
_HEAD = "# Written by `drlctl limit ... --save`, which replaces this file. docs/operations.md\n"
_FILE_MODE = 0o644

Table = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of limits that an operator asks for."""

    verb: Literal["add", "set", "remove"]
    tables: Sequence[Any] = ()
    """For `add`, tables of `[[limit]]`, not validated. For `set`, one table of the keys that
    change."""
    limit: str = ""
    """For `set` and `remove`, the limit's name or id."""
    save: bool = False


@dataclass(frozen=True, slots=True)
class Configuration:
    """A daemon's files, and what is in force."""

    files: Files
    saved: LimiterSpec
    """The configuration of the files alone."""
    in_force: LimiterSpec
    unsaved: Mapping[int, Table]
    """Changes that are not in the files, by the limit's id."""

    @classmethod
    def of(cls, files: Files) -> Configuration:
        """Make the configuration of these files.

        Raises:
            ConfigError: they cannot be used.
        """
        spec = files.spec()
        return cls(files, spec, spec, {})

    def document(self) -> Mapping[str, Any]:
        """The configuration in force, as one file would have it."""
        return self.files.merged(self._layer())

    def unsaved_keys(self) -> dict[int, list[str]]:
        """For each limit by id, the keys that the files do not have, or have with other values."""
        ids = _by_id(self.saved.limits).keys() if self.unsaved else ()
        return {
            limit_id: [key for key in table if limit_id not in ids or key not in _NAMES]
            for limit_id, table in self.unsaved.items()
        }

    def unsaved_names(self) -> list[str]:
        """The limits with unsaved changes, removed ones too."""
        return [str(table["name"]) for table in self.unsaved.values()]

    def changed(self, change: Change) -> Configuration:
        """Return this configuration after a change; only limits differ.

        Raises:
            KeyError: there is no such limit.
            ConfigError: one limit has the name and another the id, or the limits cannot be used
                then, or it cannot be saved.
        """
        problems = Problems("")
        layer = Layer("", self._tables(change, problems))
        try:
            asked = self.files.spec(self._layer(), layer)
        except ConfigError as error:
            problems.lines += error.problems
        if problems.lines:
            raise ConfigError(problems.lines)
        after = self._saving(layer) if change.save else self._keeping(layer)
        files = _by_id(after.saved.limits)
        limits = tuple(it if it != files.get(it.id) else files[it.id] for it in asked.limits)
        there = _by_id(limits)
        unsaved = {
            limit_id: table
            for limit_id, table in after.unsaved.items()
            if there.get(limit_id) != files.get(limit_id)
        }
        return replace(after, in_force=replace(self.in_force, limits=limits), unsaved=unsaved)

    def write(self, before: Configuration) -> Path:
        """Write the saved changes to disk, beside the drop-in; return that new file's path.

        `drld.config.atomic_file.replace_by` puts it in the place of `drop_in`.

        Raises:
            ConfigError: the files on disk are not those of `before`, or it cannot be written.
        """
        own = self._own()
        text = _HEAD + toml({"limit": [*own.limits]})
        if parsed(text, own.source).get("limit") != own.limits:
            raise ConfigError([f"{own.source}: TOML cannot express the values of this change"])
        if read(before.files.file) != before.files:
            raise ConfigError(
                [
                    f"{before.files.file}: it or a drop-in has changed since it was read: "
                    "run drlctl diff and drlctl reload before anything is saved"
                ]
            )
        try:
            return write_beside(self.drop_in, text, _FILE_MODE)
        except OSError as error:
            reason = f"cannot be written: {error.strerror}"
            raise ConfigError([f"{self.drop_in}: {reason}"]) from error

    @property
    def drop_in(self) -> Path:
        """Path of the drop-in with saved changes."""
        return drop_ins(self.files.file) / SAVED

    def _layer(self) -> Layer:
        return Layer(_UNSAVED, [*self.unsaved.values()])

    def _own(self) -> Layer:
        """The drop-in with saved changes; empty if there is none."""
        source = str(self.drop_in)
        return next((it for it in self.files.drop_ins if it.source == source), Layer(source, []))

    def _tables(self, change: Change, problems: Problems) -> list[Any]:
        """The tables of a layer that makes the change, without the keys that have `problems`."""
        if change.verb == "add":
            given_out = self._given_out()
            return [
                self._added(["limit", index], table, given_out, problems)
                for index, table in enumerate(change.tables)
            ]
        names = self._find(change.limit)
        if change.verb == "remove":
            return [{**names, REMOVE: True}]
        (table,) = change.tables
        keys = dict(table)
        for key in ("id", REMOVE):
            if key in keys:
                del keys[key]
                problems.add(["limit", 0, key], "cannot be set: add or remove the limit")
        edits = {"match", "overrides"} & keys.keys()
        there = _ids(self.document()).get(names["id"], {}) if edits else {}
        return [{**names, **edited(there, keys)}]

    def _added(
        self, where: list[int | str], table: Any, given_out: set[int], problems: Problems
    ) -> Any:
        """A table to add, with its id: a free one in place of none, or of one with a mistake."""
        if not isinstance(table, dict):
            return table
        table = dict(table)
        if REMOVE in table:
            del table[REMOVE]
            problems.add([*where, REMOVE], "unknown key")
        limit_id = id_of(table)
        if limit_id is None or limit_id in given_out:
            free = _free(given_out)
            self._check_id(where, table, free, problems)
            limit_id = free
        given_out.add(limit_id)
        return {**table, "id": limit_id}

    def _check_id(
        self, where: list[int | str], table: Table, free: int, problems: Problems
    ) -> None:
        """Add the mistake of a table to add whose id is missing, bad or given out."""
        place = [*where, "id"]
        if "id" in table:
            sound = id_of(table) is not None
            allowed = "one that no limit has or had" if sound else "an integer from 1 to 65535"
            problems.refuse(place, table["id"], allowed)
        elif self.in_force.peers or self.in_force.registry is not None:
            free_id = f"one that is free at all limiters, such as {free} (--id {free})"
            problems.add(place, f"is required: {free_id}")

    def _given_out(self) -> set[int]:
        """Return the ids in force and those that the files name, of removed limits too."""
        limits = self.files.document.get("limit", [])
        tables = [*limits, *self.unsaved.values()] if isinstance(limits, list) else []
        for layer in self.files.drop_ins:
            tables += layer.limits
        return {0, *(id_of(table) or 0 for table in tables)}

    def _find(self, wanted: str) -> Table:
        """The id and the name of a limit in force."""
        found = {it.id: it.name for it in self.in_force.limits if wanted in (it.name, str(it.id))}
        if not found:
            raise KeyError(wanted)
        if len(found) > 1:
            named = next(limit_id for limit_id, name in found.items() if name == wanted)
            one = f"the name or the id of one limit, but limit {named} has the name"
            raise ConfigError([f"limit: {must_be(one, wanted)}"])
        ((limit_id, name),) = found.items()
        return {"id": limit_id, "name": name}

    def _keeping(self, layer: Layer) -> Configuration:
        """Return this configuration with one more unsaved change."""
        files = _by_id(self.saved.limits)
        unsaved = dict(self.unsaved)
        for table in _tables(layer):
            limit_id = table["id"]
            if REMOVE not in table:
                unsaved[limit_id] = {**unsaved.get(limit_id, {}), **table}
            elif limit_id in files:
                unsaved[limit_id] = table
            else:
                unsaved.pop(limit_id, None)
        return replace(self, unsaved=unsaved)

    def _saving(self, layer: Layer) -> Configuration:
        """Return this configuration with one more saved change."""
        own = self._own()
        others = tuple(it for it in self.files.drop_ins if it.source != own.source)
        without = replace(self.files, drop_ins=others)
        theirs, known = _ids(without.merged()), _ids(self.files.merged())
        target = self.files.merged(self._layer(), layer)
        kept: dict[int, Table] = {table["id"]: table for table in _tables(own)}
        unsaved = dict(self.unsaved)
        for table in _tables(layer):
            limit_id = table["id"]
            left = unsaved.pop(limit_id, {})
            if REMOVE not in table:
                if limit_id in known:
                    kept[limit_id] = {**kept.get(limit_id, {}), **table}
                    if rest := left.keys() - table.keys():
                        unsaved[limit_id] = {key: left[key] for key in (*_NAMES, *rest)}
                else:
                    # The limit was added without being saved, so the drop-in needs all its keys.
                    kept[limit_id] = _ids(target)[limit_id]
            elif limit_id in theirs:
                kept[limit_id] = table
            else:
                kept.pop(limit_id, None)
        mine = Layer(own.source, [*kept.values()])
        files = replace(without, drop_ins=tuple(sorted((*others, mine), key=_source)))
        after = Configuration(files, self.saved, self.in_force, unsaved)
        if _ids(after.document()) != _ids(target):
            last = files.drop_ins[-1].source
            raise ConfigError([f"{own.source}: {last} would change it again: change that file"])
        return replace(after, saved=replace(self.saved, limits=files.spec().limits))


_NAMES = ("id", "name")


def _free(given_out: set[int]) -> int:
    """The smallest id that no limit has or had; beyond the largest id if all were given out."""
    return next(number for number in count(1) if number not in given_out)


def _source(layer: Layer) -> str:
    return layer.source


def _tables(layer: Layer) -> Iterable[dict[str, Any]]:
    """The tables of a layer that is valid."""
    for table in layer.limits:
        assert isinstance(table, dict)
        yield table


def _ids(document: Mapping[str, Any]) -> dict[int, Table]:
    """The limits of a valid document by id."""
    return {table["id"]: table for table in document["limit"]}


def _by_id(limits: Iterable[LimitSpec]) -> dict[int, LimitSpec]:
    return {limit.id: limit for limit in limits}
