"""One limiter's knowledge of its fleet: the state of the registry, updated by events. Pure.

Theory of operation (docs/registry.md#who-counts). No limiter may believe in too few members.

- A member stays one until its key is deleted: it leaves, or an operator removes it.
- A missing key counts as deleted only if the registry is *continuous* with the known one: it has
  the same `fleet`, its revision is not lower, and at the known revision it had the missing keys.
  The last condition finds a registry that went back in time and was written to since.
- No limiter forgets a key because etcd was wiped, replaced or restored from a backup. The missing
  keys are then *lost*: they stay in force, and the limiters write them again (`restoration`). Only
  then does that registry become the known one.
- An invalid value changes nothing: the last valid one stays, and `problems` has the reason.
- A joining limiter writes its member key. It is *joined* once all other members have applied a
  revision with this key (`waiting_for`). Until then it counts on no peer (`LimiterSpec.joined`) and
  enforces its static share, with itself and all earlier members in N.
- A limiter that had left, and starts while etcd is away, behaves like a joining one, in the fleet
  as it last knew it (`presumed`).

Invariant: at the moment at which a limiter becomes `joined`, every member counts it in N.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from drld.config.problems import must_be
from drld.errors import ConfigError
from drld.registry.model.keys import Keys, source
from drld.spec import LimitSpec

MAX_MEMBERS = 10_000
MAX_PROBLEMS = 1000
MAX_BYTES = 64_000_000
"""Bound of all values together; the same as a configuration file's."""

T = TypeVar("T")


class Event(NamedTuple):
    """A new value of a key; None: the key was deleted."""

    key: str
    value: bytes | None
    revision: int


@dataclass(frozen=True, slots=True)
class Member:
    """A limiter of the fleet."""

    address: tuple[str, int]
    joined: bool
    """Whether all members at the time of its registration count it."""
    since: int
    """Unix time of its registration, for people to read."""


@dataclass(frozen=True, slots=True)
class Held(Generic[T]):
    """The last valid value of a key."""

    value: T
    raw: bytes
    revision: int
    """Revision that wrote the value; 0: the value comes from the cache."""


class Reading(Protocol):
    """Readers of values; both raise ConfigError."""

    def limit(self, value: bytes, key: str) -> LimitSpec:
        """Read the value of a limit."""

    def member(self, value: bytes, key: str) -> Member:
        """Read the value of a member."""


class Registry:
    """One limiter's copy of the registry."""

    def __init__(self, keys: Keys, name: str, address: tuple[str, int], read: Reading) -> None:
        self.keys = keys
        self.name = name
        self.fleet: str | None = None
        """Identity of the known registry."""
        self.revision = 0
        """Last revision of the known registry."""
        self.seen = 0
        """Last revision read from etcd, whichever registry it has."""
        self.members: dict[str, Held[Member]] = {}
        self.limits: dict[int, Held[LimitSpec]] = {}
        self.former: dict[str, Member] = {}
        """Members that this incarnation saw leave; before the first read of the registry, those
        that the last incarnation saw leave."""
        self.problems: dict[str, str] = {}
        """Keys with an invalid value, and the reasons."""
        self.rejected = 0
        """Number of values that were not used."""
        self._address = address
        self._read = read
        self._bytes = 0
        self._ahead: dict[str, Held[Any]] = {}
        """Values that `read_ahead` has read."""
        self._lost: set[str] = set()
        self._present: str | None = None
        """Identity of the registry in etcd."""
        self.continuous = False
        """Whether the registry in etcd is the known one."""
        self._own_revision = 0
        """Revision of our member key, valid or not; 0: the key does not exist."""
        self._acknowledged: dict[str, int] = {}

    def recall(
        self,
        fleet: str | None,
        revision: int,
        items: Mapping[str, bytes],
        former: Mapping[str, bytes],
    ) -> None:
        """Begin with the knowledge from before a restart."""
        for key, value in former.items():
            self._take(key, value, 0)
            self._drop(key)
        for key, value in items.items():
            self._take(key, value, 0)
        self.fleet, self.revision = fleet, revision

    def in_question(self, items: Iterable[Event], revision: int) -> bool:
        """Whether `resync` needs `past`, the keys at our revision."""
        gone = self._known() - {item.key for item in items}
        return bool(gone) and 0 < self.revision <= revision

    def read_ahead(self, items: Iterable[Event]) -> None:
        """Read values before the next `resync` uses them, which makes it quick; `resync` reports
        errors."""
        for key, raw, _ in items:
            if raw is not None and (self.keys.member_of(key) or self.keys.limit_of(key)):
                with contextlib.suppress(ConfigError):
                    self._ahead[key] = Held(self._value(key, raw), raw, 0)

    def resync(
        self, items: Sequence[Event], revision: int, past: Collection[str] | None = None
    ) -> None:
        """Take over the whole followed range, at a revision.

        `past`: the keys that etcd had at our revision; None: unknown.
        """
        if not self.seen:
            self.former.clear()
        there = {item.key: item.value for item in items if item.value is not None}
        gone = self._known() - there.keys()
        self._present = _fleet_id(there.get(self.keys.fleet))
        self.continuous = (
            self._present is not None
            and self._present == self.fleet
            and revision >= self.revision
            and (past is None or gone <= set(past))
        )
        if not self.continuous:
            self._acknowledged.clear()
        self._own_revision = 0
        for key in self.problems.keys() - there.keys():
            del self.problems[key]
        self._lost = set() if self.continuous else gone
        # First, as they take up room that new values may need.
        for key in gone - self._lost:
            self._drop(key)
        for item in sorted(items, key=lambda item: item.revision):
            if item.value is not None:
                self._take(item.key, item.value, item.revision)
        self._ahead.clear()
        self._settle(revision)

    def apply(self, events: Iterable[Event]) -> None:
        """Apply changes in the order of their revisions; etcd may tell many revisions at once."""
        for revision, changes in groupby(events, lambda event: event.revision):
            self._apply(list(changes))
            self._settle(revision)

    def _apply(self, events: Sequence[Event]) -> None:
        # `fleet` first: a client that deletes all keys deletes it at the same revision.
        for event in events:
            if event.key == self.keys.fleet:
                self._present = _fleet_id(event.value)
                self.continuous = self._present is not None and self._present == self.fleet
        for event in events:
            if event.value is not None:
                self._take(event.key, event.value, event.revision)
                self._lost.discard(event.key)
                continue
            self.problems.pop(event.key, None)
            if event.key == self.keys.member(self.name):
                self._own_revision = 0
            if self.continuous:
                self._drop(event.key)
            elif event.key in self._known():
                self._lost.add(event.key)

    def read_by(self, read: Reading) -> None:
        """Use other readers, with other defaults, for new values and for the known limits."""
        self._read = read
        self._ahead.clear()
        for limit_id, held in self.limits.items():
            value = read.limit(held.raw, self.keys.limit(limit_id))
            self.limits[limit_id] = Held(value, held.raw, held.revision)

    def forget(self, name: str) -> None:
        """Drop a member, even if etcd still has it."""
        self._drop(self.keys.member(name))

    @property
    def presumed(self) -> Mapping[str, Member]:
        """Former members that count, by name: only at a limiter that left and cannot read etcd.

        In a fleet that was shut down, each limiter has fewer members in its cache than the one
        before. With the former members their shares sum to 1 again.
        """
        return {} if self.seen or self.name in self.members else self.former

    @property
    def lost(self) -> int:
        """The number of known keys that another registry in etcd lacks."""
        return len(self._lost)

    @property
    def overwhelmed(self) -> bool:
        """Whether `problems` may be incomplete."""
        return len(self.problems) >= MAX_PROBLEMS

    def restoration(self) -> list[tuple[str, bytes]]:
        """Keys and values to write to etcd where they are missing, in this order."""
        return [(key, self._raw(key)) for key in sorted(self._lost)]

    @property
    def founding(self) -> bool:
        """Whether the registry lacks only an identity."""
        return self._present is None and not self._lost and self.keys.fleet not in self.problems

    def registration(self, now_s: int) -> tuple[Member, int] | None:
        """The member to write as ours, and the expected revision of its key; None: no change.

        `now_s` is Unix time.
        """
        key = self.keys.member(self.name)
        if key in self._lost:
            return None  # The restoration writes it.
        held = self.members.get(self.name)
        known = held is not None and held.value.address == self._address
        if held is None or not known or not self._own_revision or key in self.problems:
            joined = held is not None and known and held.value.joined
            since = held.value.since if held is not None and known else now_s
            return Member(self._address, joined, since), self._own_revision
        if not held.value.joined and not self.waiting_for:
            return Member(self._address, True, held.value.since), self._own_revision
        return None

    def acknowledge(self, member: str, revision: int) -> None:
        """A member reports that it has applied a revision of the registry in etcd."""
        if member in self.members:
            self._acknowledged[member] = max(self._acknowledged.get(member, 0), revision)

    @property
    def joined(self) -> bool:
        """Whether all members count this limiter."""
        held = self.members.get(self.name)
        return held is not None and held.value.address == self._address and held.value.joined

    @property
    def waiting_for(self) -> list[str]:
        """The members that may not count this limiter yet."""
        if self.joined:
            return []
        others = sorted(self.members.keys() - {self.name})
        if not self._own_revision:
            return others
        return [name for name in others if self._acknowledged.get(name, 0) < self._own_revision]

    def knowledge(self) -> dict[str, bytes]:
        """Return all known values by key, sorted."""
        return {key: self._raw(key) for key in sorted(self._known())}

    def _settle(self, revision: int) -> None:
        """Finish an update: a registry with an identity that lacks no key becomes the known one."""
        if not self.continuous and not self._lost and self._present is not None:
            self.fleet = self._present
            self.continuous = True
        if self.continuous:
            self.revision = revision
        self.seen = revision

    def _take(self, key: str, value: bytes, revision: int) -> None:
        try:
            known = self._hold(key, value, revision)
        except ConfigError as error:
            self._refuse(key, "\n".join(error.problems))
        else:
            if known:
                self.problems.pop(key, None)
            else:
                self.rejected += 1

    def _hold(self, key: str, value: bytes, revision: int) -> bool:
        """Store a value; return whether the key is one of the fleet's."""
        if key == self.keys.fleet:
            if _fleet_id(value) is None:
                raise ConfigError([f"{source(key)}: must be the fleet's identity, 32 hex digits"])
            return True
        if key == self.keys.member(self.name):
            self._own_revision = revision
        if (place := self._place(key)) is None:
            return False
        table, index = place
        new = self._value(key, value)
        if table is self.limits and new.id != index:
            same = f"{index}, as in the key"
            raise ConfigError([f"{source(key)}: id: {must_be(same, new.id)}"])
        if table is self.members and index not in table and len(table) >= MAX_MEMBERS:
            raise ConfigError([f"{source(key)}: more than {MAX_MEMBERS} members"])
        size = self._bytes - _size(table.get(index)) + len(value)
        if size > MAX_BYTES:
            raise ConfigError([f"{source(key)}: more than {MAX_BYTES} bytes in the registry"])
        self._bytes = size
        table[index] = Held(new, value, revision)
        if table is self.members:
            self.former.pop(index, None)
        return True

    def _value(self, key: str, raw: bytes) -> Any:
        """The member or limit that a value describes.

        Raises:
            ConfigError: it is no such value.
        """
        table, index = self._place(key) or ({}, None)
        for held in (table.get(index), self._ahead.get(key)):
            # To read all values again would take most of a `resync`.
            if held is not None and held.raw == raw:
                return held.value
        return self._read.limit(raw, key) if table is self.limits else self._read.member(raw, key)

    def _refuse(self, key: str, problem: str) -> None:
        self.rejected += 1
        if key in self.problems or len(self.problems) < MAX_PROBLEMS:
            self.problems[key] = problem

    def _drop(self, key: str) -> None:
        if (place := self._place(key)) is None:
            return
        table, index = place
        if (held := table.pop(index, None)) is None:
            return
        self._bytes -= _size(held)
        if table is self.members:
            self._acknowledged.pop(index, None)
            if index != self.name and len(self.former) < MAX_MEMBERS:
                self.former[index] = held.value

    def _place(self, key: str) -> tuple[dict[Any, Held[Any]], Any] | None:
        """The table of a member's or a limit's key, and its index there; None for other keys."""
        if (name := self.keys.member_of(key)) is not None:
            return self.members, name
        if (limit_id := self.keys.limit_of(key)) is not None:
            return self.limits, limit_id
        return None

    def _known(self) -> set[str]:
        members = {self.keys.member(name) for name in self.members}
        return members | {self.keys.limit(limit_id) for limit_id in self.limits}

    def _raw(self, key: str) -> bytes:
        place = self._place(key)
        assert place is not None
        table, index = place
        return table[index].raw


def _size(held: Held[Any] | None) -> int:
    return len(held.raw) if held else 0


def _fleet_id(value: bytes | None) -> str | None:
    """The identity of a registry, 32 hex digits; None for any other value."""
    text = (value or b"").decode("ascii", "replace")
    return text if len(text) == 32 and set(text) <= set("0123456789abcdef") else None
