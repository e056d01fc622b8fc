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
    """Refuses the limits of these names, and says which."""

    def __init__(self, *refused: str, says: bool = True) -> None:
        super().__init__()
        self.refused = refused
        self.says = says

    def attach(self, limits: Iterable[tuple[LimitSpec, Enforcement]], now_ns: int) -> None:
        limits = list(limits)
        refused = {limit.id: "no" for limit, _ in limits if limit.name in self.refused}
        if refused:
            raise DatapathError("no", refused if self.says else None)
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


class Stage:
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
    stage = Stage(Datapath())
    stage.enforcer.start(OWN, OWN.limits)
    order = ["packets begins", "others begins", "others ends", "packets ends"]
    assert stage.notes == order
    changed = stage.enforcer.changed
    stage.enforcer.take_over(BOTH, origin=Origin("signal"))
    assert stage.notes == 2 * order
    assert changed.is_set()
    assert not stage.enforcer.changed.is_set()
    assert stage.enforcer.limit_names() == {"first", "slow"}
    assert [it["limit"] for it in stage.history.entries()] == ["slow"]


@pytest.mark.parametrize("saved", [True, False])
def test_the_history_says_whether_a_change_was_saved(saved: bool) -> None:
    stage = Stage(Datapath())
    stage.enforcer.start(OWN, OWN.limits)
    stage.enforcer.take_over(BOTH, origin=Origin("control"), save=lambda: saved)
    assert [it["saved"] for it in stage.history.entries()] == [saved]


def test_a_change_that_is_refused_changes_nothing() -> None:
    stage = Stage(Datapath("slow"))
    stage.enforcer.start(OWN, OWN.limits)
    stage.notes.clear()
    with pytest.raises(DatapathError):
        stage.enforcer.take_over(BOTH, origin=Origin("signal"))
    assert stage.notes[-2:] == ["others goes back", "packets goes back"]
    assert stage.enforcer.limit_names() == {"first"}
    assert not [*stage.history.entries()]
    assert not stage.enforcer.changed.is_set()


@pytest.mark.parametrize("says", [True, False])
def test_a_start_leaves_out_the_limits_of_the_registry_that_the_host_refuses(says: bool) -> None:
    stage = Stage(Datapath("slow", says=says))
    stage.enforcer.start(BOTH, OWN.limits)
    assert stage.attached() == ["first"]
    assert stage.enforcer.engine.spec.limits == OWN.limits


def test_a_start_says_which_limit_of_the_files_the_host_refuses() -> None:
    with pytest.raises(DatapathError):
        Stage(Datapath("first")).enforcer.start(BOTH, OWN.limits)


async def test_the_slow_part_of_a_change_is_each_planes_own() -> None:
    stage = Stage(Datapath())
    await stage.enforcer.prepare(BOTH)
    assert stage.notes == ["packets prepares 2", "others prepares 2"]


def test_other_keys_reach_gossip_and_each_plane() -> None:
    stage = Stage(Datapath())
    ring = KeyRing(keys={1: bytes(32)}, use=1)
    stage.enforcer.change_ring(lambda old: replace(old, keys=ring.keys, use=ring.use))
    assert [stage.enforcer.transport.ring, *(it.ring for it in stage.planes)] == [ring] * 3


def test_keys_that_are_refused_change_nothing() -> None:
    def refuse(_: KeyRing) -> KeyRing:
        raise ConfigError(["no"])

    stage = Stage(Datapath())
    with pytest.raises(ConfigError):
        stage.enforcer.change_ring(refuse)
    assert cast(Any, stage.planes[0]).ring is None
