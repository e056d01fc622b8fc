"""Fleets that follow a registry through joins, deaths, cuts from etcd and losses of etcd.

Each example is a history of a fleet: limiters that are started, killed, stopped, cut off from etcd
and connected again, in any order, each at its own pace behind the registry.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from drld.registry.cache import Remembered
from drld.registry.model.state import Registry
from drld.registry.records import write_member, write_members

from ..registry_factories import FLEET, KEYS, Store, known

NAMES = "abcd"
Deed: TypeAlias = tuple[str, str]
"""An action, and the limiter that it concerns."""


@dataclass
class Limiter:
    registry: Registry
    connected: bool = True
    cursor: int | None = None
    """Up to which revision it has followed; None: it has to read everything."""
    counts: set[str] = field(default_factory=set)
    """The members that it counted when it was last looked at."""


class World:
    """A registry, and limiters each of which is driven as its daemon drives it."""

    def __init__(self) -> None:
        self.store = Store()
        self.backup = Store()
        self.alive: dict[str, int] = {}
        self.running: dict[str, Limiter] = {}
        self.disks: dict[str, Remembered] = {}
        self.gone: set[str] = set()
        """Limiters that left or were removed, and that no other has counted since."""
        self.wiped = False

    def do(self, deed: Deed) -> None:
        what, name = deed
        limiter = self.running.get(name)
        if what == "start" and limiter is None:
            registry = known(name, 1 + NAMES.index(name))
            if name in self.disks:
                registry.recall(*self.disks[name])
            self.running[name] = Limiter(registry)
            # A limiter that has never known its fleet waits for etcd.
            self.follow(name)
        elif what == "wipe":
            self.store.wipe()
            self.alive.clear()
            self.wiped = True
            for other in self.running.values():
                other.cursor = None
        elif what == "backup":
            self.backup = copy.deepcopy(self.store)
        elif what == "rewind":
            if all(other.connected for other in self.running.values()):
                self.store = copy.deepcopy(self.backup)
                self.wiped = True
                for other in self.running.values():
                    other.cursor = None
                for other_name in self.running:
                    self.follow(other_name)
        elif what == "remove" and limiter is None:
            if self.store.commit({KEYS.member(name): None}):
                self.gone.add(name)
                self.disks.pop(name, None)
        elif limiter is not None:
            self.do_to(limiter, what, name)

    def do_to(self, limiter: Limiter, what: str, name: str) -> None:
        if what in ("kill", "stop"):
            if what == "stop" and limiter.connected:
                key = KEYS.member(name)
                self.store.commit({key: None})
                limiter.registry.forget(name)
                self.gone.add(name)
            self.save(name)
            del self.running[name]
            self.alive.pop(name, None)
        elif what == "cut":
            limiter.connected, limiter.cursor = False, None
            self.alive.pop(name, None)
        elif what == "connect":
            limiter.connected = True
        elif what == "follow":
            self.follow(name)
        elif what == "act":
            self.act(name)
        elif what == "work":
            self.follow(name)
            self.act(name)
            self.follow(name)

    def follow(self, name: str) -> None:
        limiter = self.running[name]
        if not limiter.connected:
            return
        if limiter.cursor is None:
            limiter.registry.resync(*self.store.read())
        elif events := self.store.since(limiter.cursor):
            limiter.registry.apply(events)
        limiter.cursor = self.store.revision
        self.save(name)
        if limiter.registry.members:
            self.alive[name] = limiter.registry.seen

    def act(self, name: str) -> None:
        """Do the upkeep of a limiter, whose picture may be old."""
        limiter = self.running[name]
        registry = limiter.registry
        if not limiter.connected or limiter.cursor is None:
            return
        for key, value in registry.restoration():
            self.store.commit({key: value}, {key: 0})
        if registry.founding:
            self.store.commit({KEYS.fleet: (registry.fleet or FLEET).encode()}, {KEYS.fleet: 0})
        for other, applied in self.alive.items():
            registry.acknowledge(other, applied)
        if (wanted := registry.registration(0)) is not None:
            member, revision = wanted
            key = KEYS.member(name)
            if self.store.commit({key: write_member(member)}, {key: revision}):
                self.gone.discard(name)

    def save(self, name: str) -> None:
        registry = self.running[name].registry
        former = write_members(KEYS, registry.former)
        self.disks[name] = Remembered(
            registry.fleet, registry.revision, registry.knowledge(), former
        )

    def check(self) -> None:
        for limiter in self.running.values():
            counts = set(limiter.registry.members)
            # No member is dropped that has neither left nor been removed, whatever happens to etcd.
            assert limiter.counts - counts <= self.gone | {limiter.registry.name}
            limiter.counts = counts
        if self.wiped:
            return
        joined = {name for name, limiter in self.running.items() if limiter.registry.joined}
        for name, limiter in self.running.items():
            # All members count every limiter that takes part; an unregistered limiter is no member.
            if name in limiter.registry.members:
                assert joined <= limiter.registry.members.keys()
        # So the static shares of all limiters that take part never sum to more than 1.
        shares = [1 / len(self.running[name].registry.members) for name in joined]
        assert sum(shares) <= 1 + 1e-9

    def settle(self) -> None:
        """Connect all limiters, remove the dead ones, and let time pass."""
        for name in NAMES:
            self.do(("connect", name))
            self.do(("remove", name))
        for _ in range(4):
            for name in self.running:
                self.follow(name)
                self.act(name)
        for name in self.running:
            self.follow(name)


def deeds(*kinds: str) -> st.SearchStrategy[list[Deed]]:
    one = st.tuples(st.sampled_from(kinds), st.sampled_from(NAMES))
    return st.lists(one, max_size=80)


ALL = ("start", "start", "kill", "stop", "cut", "connect", "follow", "act", *(4 * ("work",)))


@given(deeds(*ALL))
def test_all_members_count_every_limiter_that_takes_part(history: list[Deed]) -> None:
    world = World()
    for deed in history:
        world.do(deed)
        world.check()
    world.settle()
    world.check()
    for limiter in world.running.values():
        assert limiter.registry.members.keys() == world.running.keys()
        assert limiter.registry.joined
        assert limiter.registry.continuous


@given(deeds(*ALL, "wipe", "backup", "rewind"))
def test_a_wiped_or_restored_registry_makes_no_limiter_drop_a_member(history: list[Deed]) -> None:
    world = World()
    for deed in history:
        world.do(deed)
        world.check()
    for name in NAMES:
        world.do(("connect", name))
    for _ in range(4):
        for name in world.running:
            world.follow(name)
            world.act(name)
            world.check()
    for limiter in world.running.values():
        assert limiter.registry.members.keys() >= world.running.keys()
        assert limiter.registry.continuous
        assert limiter.registry.lost == 0


@given(st.permutations(NAMES), st.lists(st.booleans(), min_size=16, max_size=16))
def test_a_fleet_that_was_shut_down_shares_its_limit_before_etcd_is_back(
    order: list[str], hears: list[bool]
) -> None:
    """Whatever the order, and whether those that still ran heard of it."""
    world = World()
    for _ in range(3):
        for name in NAMES:
            world.do(("start", name))
            world.do(("work", name))
    assert all(world.running[name].registry.joined for name in NAMES)
    for name in order:
        world.do(("stop", name))
        for other in world.running:
            if hears.pop():
                world.follow(other)
    for name in NAMES:
        registry = known(name, 1 + NAMES.index(name))
        registry.recall(*world.disks[name])
        assert not registry.joined
        assert {name, *registry.members, *registry.presumed} == set(NAMES)
        registry.resync(*world.store.read())
        assert not registry.presumed
