"""An operator's changes to a whole fleet, each in one step.

For `drlctl fleet` and `drlctl limit ... --fleet`.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import trio

from drld.config.edits import edited
from drld.config.layers import id_of
from drld.config.problems import must_be
from drld.errors import ConfigError, RegistryError
from drld.registry.etcd import Etcd
from drld.registry.model.keys import Keys, source
from drld.registry.model.state import Member, Registry
from drld.registry.records import Alive, Readers, parsed, read_alive, written
from drld.spec import LimitSpec, RegistrySpec

POLL_S = 0.2
MAX_AT_ONCE = 60
"""Limits in one step: etcd takes 128 changes at once, and a limit needs two."""
_ANY_INTERVAL_NS = 50_000_000
"""Interval of limits without the key `interval`; each member has its own default."""


@dataclass(frozen=True, slots=True)
class Status:
    """A member in the registry."""

    name: str
    member: Member
    alive: Alive | None
    """The report of the member; None: etcd has not heard from it for its time to live."""


class Fleet:
    """One fleet, over a session with etcd."""

    def __init__(self, etcd: Etcd, registry: RegistrySpec) -> None:
        self.keys = Keys(registry.fleet)
        self.committing = False
        """Whether a change was sent and not answered: it may have been made."""
        self._etcd = etcd
        # Interfaces keep the fleet's names.
        plain = dataclasses.replace(registry, interfaces={})
        self._readers = Readers(_ANY_INTERVAL_NS, plain)

    async def known(self) -> Registry:
        """All valid members and limits; `problems` has the others."""
        registry, _ = await self._look()
        return registry

    async def members(self) -> list[Status]:
        """Return all members, sorted by name."""
        registry = await self.known()
        alive = await self._alive()
        return [
            Status(name, held.value, alive.get(name))
            for name, held in sorted(registry.members.items())
        ]

    async def add_limits(self, tables: Iterable[Any]) -> tuple[list[int], int]:
        """Add these limits to the fleet, all or none; return their ids, and the revision.

        A table without `id` gets the smallest id that was never given out.

        Raises:
            ConfigError: a limit is invalid, or clashes with another.
            RegistryError: etcd cannot be reached, or another client changed the fleet meanwhile.
        """
        tables = list(tables)
        if len(tables) > MAX_AT_ONCE:
            raise ConfigError([f"{len(tables)} limits: at most {MAX_AT_ONCE} at once"])
        registry, there = await self._look()
        before, _ = await self._etcd.read(self.keys.all_given_out)
        standing = {limit_id for key in there if (limit_id := self.keys.limit_of(key))}
        given_out = standing | {
            limit_id for item in before if (limit_id := self.keys.given_out_of(item.key))
        }
        there |= {item.key: item.revision for item in before}
        names = {held.value.name: limit_id for limit_id, held in registry.limits.items()}
        changes: dict[str, bytes | None] = {}
        where: dict[str, int] = {}
        ids: list[int] = []
        problems: list[str] = []
        for index, given in enumerate(tables):
            what = f"limit[{index}]"
            table = dict(given) if isinstance(given, dict) else given
            if isinstance(table, dict):
                if "id" not in table:
                    table["id"] = _free(given_out)
                if (limit_id := id_of(table)) in given_out:
                    problems.append(f"{what}.id: {self._taken(limit_id, ids, standing)}")
                problems += self._clash(table, what, names)
            try:
                spec = self._validated(table, what)
            except ConfigError as error:
                problems += error.problems
                continue
            key = self.keys.limit(spec.id)
            changes[key] = written(table)
            used = self.keys.given_out(spec.id)
            changes[used] = b"{}"
            # Fails if another client added the limit meanwhile, or added and removed it.
            where |= {key: there.get(key, 0), used: there.get(used, 0)}
            names[spec.name] = spec.id
            given_out.add(spec.id)
            ids.append(spec.id)
        if problems:
            raise ConfigError(problems)
        return ids, await self._commit(changes, where)

    async def set_limit(self, wanted: str, keys: Mapping[str, Any]) -> tuple[int, int]:
        """Change keys of a limit, by name or id; return its id, and the revision.

        If the limit is invalid as it is, these keys are all that it has.

        Raises:
            ConfigError: the limit does not exist, or is invalid then, or clashes with another.
            RegistryError: as `add_limits`.
        """
        registry, there = await self._look()
        limit_id = self._found(wanted, registry, there)
        key, held = self.keys.limit(limit_id), registry.limits.get(limit_id)
        there_is = parsed(held.raw, key) if held else {}
        table = {**there_is, **edited(there_is, keys), "id": limit_id}
        others = {it.value.name: other for other, it in registry.limits.items()}
        problems = self._clash(table, "limit[0]", others)
        try:
            self._validated(table, "limit[0]")
        except ConfigError as error:
            problems += error.problems
        if problems:
            raise ConfigError(problems)
        return limit_id, await self._commit({key: written(table)}, {key: there[key]})

    async def remove_limit(self, wanted: str) -> tuple[int, int]:
        """Remove a limit, by name or id, from the fleet; return its id, and the revision.

        Its id is never given out again, as datagrams under way between limiters may have it.

        Raises:
            ConfigError: the limit does not exist, or one limit has the name and another the id.
            RegistryError: as `add_limits`.
        """
        registry, there = await self._look()
        limit_id = self._found(wanted, registry, there)
        key = self.keys.limit(limit_id)
        changes = {key: None, self.keys.given_out(limit_id): b"{}"}
        return limit_id, await self._commit(changes, {key: there[key]})

    def _found(self, wanted: str, registry: Registry, there: Mapping[str, int]) -> int:
        """The id of the limit of this name or id.

        Raises:
            ConfigError: the limit does not exist, or one limit has the name and another the id.
        """
        named = {n for n, held in registry.limits.items() if held.value.name == wanted}
        # An invalid limit can be changed and removed, too.
        ids = {n for key in there if (n := self.keys.limit_of(key)) and str(n) == wanted}
        if not named | ids:
            raise ConfigError([f"fleet {self.keys.name} has no limit {wanted!r}"])
        if len(named | ids) > 1:
            one = f"the name or the id of one limit, but limit {named.pop()} has the name"
            raise ConfigError([f"limit: {must_be(one, wanted)}"])
        (limit_id,) = named | ids
        return limit_id

    async def remove(self, name: str, *, force: bool) -> int:
        """Remove a member from the fleet; return the revision.

        Raises:
            ConfigError: the member does not exist, or it is alive and `force` is False.
            RegistryError: as `add_limits`.
        """
        key, alive = self.keys.member(name), self.keys.alive(name)
        _, there = await self._look()
        if key not in there:
            raise ConfigError([f"fleet {self.keys.name} has no member {name!r}"])
        where = {key: there[key]}
        if not force:
            if await self._etcd.get(alive) is not None:
                raise ConfigError(
                    [f"{name} is alive: stop it, and it leaves (or --force: it joins again)"]
                )
            where[alive] = 0
        return await self._commit({key: None}, where)

    async def applied(self, revision: int, within_s: float) -> list[Status]:
        """Wait until all members that are alive have applied a revision; return all states."""
        members = await self.members()
        with trio.move_on_after(within_s):
            while any(m.alive is not None and m.alive.applied < revision for m in members):
                await trio.sleep(POLL_S)
                members = await self.members()
        return members

    async def _alive(self) -> Mapping[str, Alive]:
        items, _ = await self._etcd.read(self.keys.all_alive)
        found: dict[str, Alive] = {}
        for item in items:
            name = self.keys.alive_of(item.key)
            if name is not None and item.value is not None:
                try:
                    found[name] = read_alive(item.value, item.key)
                except ConfigError:
                    continue
        return found

    async def _look(self) -> tuple[Registry, dict[str, int]]:
        """The registry's present contents, and the revisions of its keys."""
        items, revision = await self._etcd.read(self.keys.followed)
        registry = Registry(self.keys, "", ("", 0), self._readers)
        registry.resync(items, revision)
        return registry, {item.key: item.revision for item in items}

    def _validated(self, table: object, what: str) -> LimitSpec:
        if not isinstance(table, dict):
            raise ConfigError([f"{what}: {must_be('a table', table)}"])
        key = self.keys.limit(table["id"])
        try:
            value = written(table)
        except (TypeError, ValueError) as error:
            raise ConfigError([f"{what}: {error}"]) from error
        try:
            return self._readers.limit(value, key)
        except ConfigError as error:
            begin = f"{source(key)}: "
            raise ConfigError(
                [f"{what}.{line.removeprefix(begin)}" for line in error.problems]
            ) from None

    def _taken(self, limit_id: int, added: Collection[int], standing: Collection[int]) -> str:
        """The mistake that a limit to add has the id of another, which may be gone."""
        if limit_id in added:
            return must_be("unique, but another has it", limit_id)
        state = "has it; `drlctl limit set` changes it" if limit_id in standing else "had it"
        other = source(self.keys.limit(limit_id))
        return must_be(f"one that was never given out, but {other} {state}", limit_id)

    def _clash(self, table: Mapping[str, Any], what: str, names: Mapping[str, int]) -> list[str]:
        """The mistake that a table has the name of another limit, or none."""
        name = table.get("name")
        other = names.get(name) if isinstance(name, str) else None
        if other is None or other == table["id"]:
            return []
        unique = f"unique, but {source(self.keys.limit(other))} has it"
        return [f"{what}.name: {must_be(unique, name)}"]

    async def _commit(self, changes: Mapping[str, bytes | None], where: Mapping[str, int]) -> int:
        fleet = self.keys.fleet
        if await self._etcd.get(fleet) is None:
            await self._etcd.commit({fleet: secrets.token_hex(16).encode()}, {fleet: 0})
        self.committing = True
        revision = await self._etcd.commit(changes, where)
        self.committing = False
        if revision is None:
            raise RegistryError(
                "another client has changed this in the meantime: run the command again"
            )
        return revision


def _free(given_out: set[int]) -> int:
    for limit_id in range(1, 65536):
        if limit_id not in given_out:
            return limit_id
    raise ConfigError(["all ids, 1 to 65535, were given out"])
