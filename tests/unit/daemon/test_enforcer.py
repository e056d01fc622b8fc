"""The engine, and the planes of a daemon around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, cast

import pytest

from drld.capture.spec import Match
from drld.daemon.enforcer import Enforcer
from drld.daemon.history import History
from drld.daemon.origin import Origin
from drld.daemon.running_plane import RunningPlane
from drld.errors import ConfigError, DatapathError
from drld.gossip.wire.keyring import KeyRing
from drld.model import Enforcement
from drld.spec import LimiterSpec, LimitSpec
from tests.engine_fakes import FIRST, SLOW, FakeDatapath, FakeTransport
from tests.factories import limiter_spec

OWN = limiter_spec(FIRST)
BOTH = limiter_spec(FIRST, SLOW)
"""The second limit is the registry's."""


class Datapath(FakeDatapath):
    """Refuses the limits of these names; its error names them if `names` is set."""

    def __init__(self, *refused: str, names: bool = True) -> None:
        super().__init__()
        self.refused = refused
        self.names = names

    def attach(self, limits: Iterable[tuple[LimitSpec, Enforcement]], now_ns: int) -> None:
        limits = list(limits)
        refused = {limit.id: "no" for limit, _ in limits if limit.name in self.refused}
        if refused:
            raise DatapathError("no", refused if self.names else None)
        super().attach(limits, now_ns)


class Toy(RunningPlane):
    """Notes when it takes part."""

    def __init__(self, name: str, target: type, datapath: Datapath, notes: list[str]) -> None:
        super().__init__(target, datapath)
        self.name = name
        self.notes = notes
        self.ring: KeyRing | None = None

    async def prepare(self, spec: LimiterSpec) -> None:
        self.notes.append(f"{self.name} prepares {len(spec.limits)}")

    def put(self, spec: LimiterSpec, attach: Callable[[], None]) -> None:
        self.notes.append(f"{self.name} begins")
        try:
            attach()
        except DatapathError:
            self.notes.append(f"{self.name} goes back")
            raise
        self.notes.append(f"{self.name} ends")

    def set_ring(self, spec: LimiterSpec, ring: KeyRing) -> None:
        self.ring = ring


class Host:
    """An enforcer with two planes."""

    def __init__(self, datapath: Datapath) -> None:
        self.notes: list[str] = []
        self.datapath = datapath
        self.planes = [
            Toy("packets", Match, datapath, self.notes),
            Toy("others", type(None), Datapath(), self.notes),
        ]
        self.history = History(None)
        transport: Any = FakeTransport()
        transport.ring = KeyRing()
        self.enforcer = Enforcer(OWN, transport, self.planes, self.history)

    def attached(self) -> list[str]:
        return [limit.name for limit in self.datapath.attached]


def test_each_plane_takes_part_in_a_start_and_in_a_change() -> None:
    host = Host(Datapath())
    host.enforcer.start(OWN, OWN.limits)
    order = ["packets begins", "others begins", "others ends", "packets ends"]
    assert host.notes == order
    changed = host.enforcer.changed
    host.enforcer.take_over(BOTH, origin=Origin("signal"))
    assert host.notes == 2 * order
    assert changed.is_set()
    assert not host.enforcer.changed.is_set()
    assert host.enforcer.limit_names() == {"first", "slow"}
    assert [it["limit"] for it in host.history.entries()] == ["slow"]


@pytest.mark.parametrize("saved", [True, False])
def test_the_history_says_whether_a_change_was_saved(saved: bool) -> None:
    host = Host(Datapath())
    host.enforcer.start(OWN, OWN.limits)
    host.enforcer.take_over(BOTH, origin=Origin("control"), save=lambda: saved)
    assert [it["saved"] for it in host.history.entries()] == [saved]


def test_a_change_that_is_refused_changes_nothing() -> None:
    host = Host(Datapath("slow"))
    host.enforcer.start(OWN, OWN.limits)
    host.notes.clear()
    with pytest.raises(DatapathError):
        host.enforcer.take_over(BOTH, origin=Origin("signal"))
    assert host.notes[-2:] == ["others goes back", "packets goes back"]
    assert host.enforcer.limit_names() == {"first"}
    assert not [*host.history.entries()]
    assert not host.enforcer.changed.is_set()


@pytest.mark.parametrize("names", [True, False])
def test_a_start_leaves_out_the_limits_of_the_registry_that_the_host_refuses(names: bool) -> None:
    host = Host(Datapath("slow", names=names))
    host.enforcer.start(BOTH, OWN.limits)
    assert host.attached() == ["first"]
    assert host.enforcer.engine.spec.limits == OWN.limits


def test_a_start_says_which_limit_of_the_files_the_host_refuses() -> None:
    with pytest.raises(DatapathError):
        Host(Datapath("first")).enforcer.start(BOTH, OWN.limits)


async def test_the_slow_part_of_a_change_is_each_planes_own() -> None:
    host = Host(Datapath())
    await host.enforcer.prepare(BOTH)
    assert host.notes == ["packets prepares 2", "others prepares 2"]


def test_other_keys_reach_gossip_and_each_plane() -> None:
    host = Host(Datapath())
    ring = KeyRing(keys={1: bytes(32)}, use=1)
    host.enforcer.change_ring(lambda old: replace(old, keys=ring.keys, use=ring.use))
    assert [host.enforcer.transport.ring, *(it.ring for it in host.planes)] == [ring] * 3


def test_keys_that_are_refused_change_nothing() -> None:
    def refuse(_: KeyRing) -> KeyRing:
        raise ConfigError(["no"])

    host = Host(Datapath())
    with pytest.raises(ConfigError):
        host.enforcer.change_ring(refuse)
    assert cast(Any, host.planes[0]).ring is None
