"""What one limiter knows of its fleet: a picture of the registry, kept by events. Pure.

Theory of operation. Static shares are 1/N over the members, so what counts is that no limiter
believes in too small an N. Therefore

- A member is a member until it says that it leaves or an operator says so, which is that its key is
  deleted. That nothing was heard of it is no reason: it may be cut off from etcd and forwarding.
- That a key is gone is believed only in a registry that is the one we know and has not gone back in
  time (`_continuous`): its `fleet` is the same, its revision is not lower, and at the revision that
  we know it had what is missing now. The last is for one that went back and has been written to
  since, by whomever. An etcd that was wiped, replaced or restored from a backup makes nobody forget
  anything: what is missing in it is *lost*, stays in force, and is put there again (`restoration`)
  by whoever notices. Only then is that registry the one we know.
- A value that cannot be used changes nothing: the last good one stays, and `problems` says why.
- Who joins puts its member key and is *joined* when all other members have applied a revision
  that has it (`waiting_for`). Until then it counts on nobody (`LimiterSpec.joined`) and enforces
  its static share, of an N that includes itself and everybody who came before.
- Who has left, and starts while the registry cannot be read, is as one who joins, in the fleet as
  it was (`presumed`).

Invariant: who is `joined` has been counted in N by every member, at the moment when it became so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from drld.config.problems import must_be
from drld.errors import ConfigError
from drld.registry.model.keys import Keys, source
from drld.spec import LimitSpec

MAX_MEMBERS = 10_000
MAX_PROBLEMS = 1000
MAX_BYTES = 64_000_000
"""Of all values together; as much as a configuration file may have."""

T = TypeVar("T")


class Event(NamedTuple):
    """A key has a value now; None: it was deleted."""

    key: str
    value: bytes | None
    revision: int


@dataclass(frozen=True, slots=True)
class Member:
    """A limiter of the fleet."""

    address: tuple[str, int]
    joined: bool
    """Whether all who were members when it came know of it."""
    since: int
    """Unix time at which it registered; for people to read."""


@dataclass(frozen=True, slots=True)
class Held(Generic[T]):
    """The last good value of a key."""

    value: T
    raw: bytes
    revision: int
    """At which it was written; 0 where a file on disk says so."""


class Reading(Protocol):
    """How values are read; both raise ConfigError."""

    def limit(self, value: bytes, key: str) -> LimitSpec:
        """A limit."""

    def member(self, value: bytes, key: str) -> Member:
        """A member."""


class Registry:
    """The registry as one limiter knows it."""

    def __init__(self, keys: Keys, name: str, address: tuple[str, int], read: Reading) -> None:
        self.keys = keys
        self.name = name
        self.fleet: str | None = None
        """Which registry we know."""
        self.revision = 0
        """Up to which we know it."""
        self.seen = 0
        """The revision in etcd, whatever registry it is, that all this is of."""
        self.members: dict[str, Held[Member]] = {}
        self.limits: dict[int, Held[LimitSpec]] = {}
        self.former: dict[str, Member] = {}
        """Who was a member in this life of ours and is none any more; in the last one, until this
        one has read the registry."""
        self.problems: dict[str, str] = {}
        """Keys whose value is not used, and why."""
        self.rejected = 0
        """Values that were not used."""
        self._address = address
        self._read = read
        self._bytes = 0
        self._lost: set[str] = set()
        self._present: str | None = None
        """Which registry is in etcd."""
        self._continuous = False
        self._own_revision = 0
        """At which our member key was written, whatever stands there; 0: it is not there."""
        self._acknowledged: dict[str, int] = {}

    def recall(
        self,
        fleet: str | None,
        revision: int,
        items: Mapping[str, bytes],
        former: Mapping[str, bytes],
    ) -> None:
        """Begin with what was known before a restart."""
        for key, value in former.items():
            self._take(key, value, 0)
            self._drop(key)
        for key, value in items.items():
            self._take(key, value, 0)
        self.fleet, self.revision = fleet, revision

    def in_question(self, items: Iterable[Event], revision: int) -> bool:
        """Whether `resync` should be told of the past, at our revision."""
        gone = self._known() - {item.key for item in items}
        return bool(gone) and 0 < self.revision <= revision

    def resync(
        self, items: Sequence[Event], revision: int, past: Collection[str] | None = None
    ) -> None:
        """All that stands in the followed range, as of a revision.

        `past` are the keys of which the registry says that they stood there at our revision; None:
        it does not say.
        """
        if not self.seen:
            self.former.clear()
        there = {item.key: item.value for item in items if item.value is not None}
        gone = self._known() - there.keys()
        self._present = _fleet_id(there.get(self.keys.fleet))
        self._continuous = (
            self._present is not None
            and self._present == self.fleet
            and revision >= self.revision
            and (past is None or gone <= set(past))
        )
        if not self._continuous:
            self._acknowledged.clear()
        self._own_revision = 0
        for key in self.problems.keys() - there.keys():
            del self.problems[key]
        for item in sorted(items, key=lambda item: item.revision):
            if item.value is not None:
                self._take(item.key, item.value, item.revision)
        self._lost = set()
        if self._continuous:
            for key in gone:
                self._drop(key)
        else:
            self._lost = gone
        self._settle(revision)

    def apply(self, events: Iterable[Event], revision: int) -> None:
        """What changed, all of it up to a revision."""
        events = list(events)
        # Who deletes everything deletes `fleet` in the same moment.
        for event in events:
            if event.key == self.keys.fleet:
                self._present = _fleet_id(event.value)
                self._continuous = self._present is not None and self._present == self.fleet
        if self.fleet is None and not self._known():
            # Who knew nothing cannot have lost what came and went since.
            self._settle(self.revision)
        for event in events:
            if event.value is not None:
                self._take(event.key, event.value, event.revision)
                self._lost.discard(event.key)
                continue
            self.problems.pop(event.key, None)
            if event.key == self.keys.member(self.name):
                self._own_revision = 0
            if self._continuous:
                self._drop(event.key)
            elif event.key in self._known():
                self._lost.add(event.key)
        self._settle(revision)

    def read_by(self, read: Reading) -> None:
        """Read limits otherwise from now on, those that are known too: with other defaults."""
        self._read = read
        for limit_id, held in self.limits.items():
            value = read.limit(held.raw, self.keys.limit(limit_id))
            self.limits[limit_id] = Held(value, held.raw, held.revision)

    def forget(self, name: str) -> None:
        """A member is none any more, whatever etcd says."""
        self._drop(self.keys.member(name))

    @property
    def presumed(self) -> Mapping[str, Member]:
        """Who counts though no member is known of that name.

        Whoever has left is counted by nobody, and starts while etcd is away: it takes no more than
        its part of the fleet as it was. So the shares of a fleet that was shut down, and each of
        whose limiters has fewer members in its cache than the one before, sum to 1 again.
        """
        return {} if self.seen or self.name in self.members else self.former

    @property
    def continuous(self) -> bool:
        """Whether the registry in etcd is the one we know."""
        return self._continuous

    @property
    def lost(self) -> int:
        """How many keys are gone from a registry that is not the one we know."""
        return len(self._lost)

    @property
    def overwhelmed(self) -> bool:
        """Whether there may be more problems than `problems` has."""
        return len(self.problems) >= MAX_PROBLEMS

    def restoration(self) -> list[tuple[str, bytes]]:
        """What to put into the registry where it is not there, in this order."""
        return [(key, self._raw(key)) for key in sorted(self._lost)]

    @property
    def founding(self) -> bool:
        """Whether the registry has everything but an identity."""
        return self._present is None and not self._lost and not self._unreadable(self.keys.fleet)

    def registration(self, now_s: int) -> tuple[Member, int] | None:
        """What to put as our member key if it is still of that revision; None: nothing.

        `now_s` is Unix time.
        """
        key = self.keys.member(self.name)
        if key in self._lost:
            return None  # The restoration puts it.
        held = self.members.get(self.name)
        known = held is not None and held.value.address == self._address
        if held is None or not known or not self._own_revision or self._unreadable(key):
            joined = held is not None and known and held.value.joined
            since = held.value.since if held is not None and known else now_s
            return Member(self._address, joined, since), self._own_revision
        if not held.value.joined and not self.waiting_for:
            return Member(self._address, True, held.value.since), self._own_revision
        return None

    def acknowledge(self, member: str, revision: int) -> None:
        """A member says that it has applied a revision of the registry in etcd."""
        if member in self.members:
            self._acknowledged[member] = max(self._acknowledged.get(member, 0), revision)

    @property
    def joined(self) -> bool:
        """Whether all members count this limiter."""
        held = self.members.get(self.name)
        return held is not None and held.value.address == self._address and held.value.joined

    @property
    def waiting_for(self) -> list[str]:
        """The members that are not known to count this limiter."""
        if self.joined:
            return []
        others = sorted(self.members.keys() - {self.name})
        if not self._own_revision:
            return others
        return [name for name in others if self._acknowledged.get(name, 0) < self._own_revision]

    def knowledge(self) -> dict[str, bytes]:
        """Everything that is known, by key."""
        return {key: self._raw(key) for key in sorted(self._known())}

    def _settle(self, revision: int) -> None:
        """A registry that lacks nothing and has an identity is from now on the one we know."""
        if not self._continuous and not self._lost and self._present is not None:
            self.fleet = self._present
            self._continuous = True
        if self._continuous:
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
        """Whether it is a key of ours."""
        if key == self.keys.fleet:
            if _fleet_id(value) is None:
                raise ConfigError([f"{source(key)}: no identity of a fleet: 32 hex digits"])
        elif (name := self.keys.member_of(key)) is not None:
            if name == self.name:
                self._own_revision = revision
            member = self._read.member(value, key)
            if name not in self.members and len(self.members) >= MAX_MEMBERS:
                raise ConfigError([f"{source(key)}: more than {MAX_MEMBERS} members"])
            self._weigh(key, self.members.get(name), value)
            self.members[name] = Held(member, value, revision)
            self.former.pop(name, None)
        elif (limit_id := self.keys.limit_of(key)) is not None:
            limit = self._read.limit(value, key)
            if limit.id != limit_id:
                same = f"{limit_id}, as in the key"
                raise ConfigError([f"{source(key)}: id: {must_be(same, limit.id)}"])
            self._weigh(key, self.limits.get(limit_id), value)
            self.limits[limit_id] = Held(limit, value, revision)
        else:
            return False
        return True

    def _weigh(self, key: str, old: Held[Any] | None, value: bytes) -> None:
        size = self._bytes - _size(old) + len(value)
        if size > MAX_BYTES:
            raise ConfigError([f"{source(key)}: more than {MAX_BYTES} bytes in the registry"])
        self._bytes = size

    def _refuse(self, key: str, problem: str) -> None:
        self.rejected += 1
        if key in self.problems or len(self.problems) < MAX_PROBLEMS:
            self.problems[key] = problem

    def _unreadable(self, key: str) -> bool:
        return key in self.problems

    def _drop(self, key: str) -> None:
        if (name := self.keys.member_of(key)) is not None:
            held = self.members.pop(name, None)
            self._bytes -= _size(held)
            self._acknowledged.pop(name, None)
            if held is not None and name != self.name and len(self.former) < MAX_MEMBERS:
                self.former[name] = held.value
        elif (limit_id := self.keys.limit_of(key)) is not None:
            self._bytes -= _size(self.limits.pop(limit_id, None))

    def _known(self) -> set[str]:
        members = {self.keys.member(name) for name in self.members}
        return members | {self.keys.limit(limit_id) for limit_id in self.limits}

    def _raw(self, key: str) -> bytes:
        name, limit_id = self.keys.member_of(key), self.keys.limit_of(key)
        held: Held[Member] | Held[LimitSpec] | None = None
        if name is not None:
            held = self.members[name]
        elif limit_id is not None:
            held = self.limits[limit_id]
        assert held is not None
        return held.raw


def _size(held: Held[Any] | None) -> int:
    return len(held.raw) if held else 0


def _fleet_id(value: bytes | None) -> str | None:
    """The identity of a registry, 32 hex digits; None where there is none."""
    text = (value or b"").decode("ascii", "replace")
    return text if len(text) == 32 and set(text) <= set("0123456789abcdef") else None
