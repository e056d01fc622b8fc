"""The periodic work of a session with etcd, without etcd."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import cast

import trio
import trio.testing

from drld.registry.etcd import Etcd
from drld.registry.model.state import Event, Registry
from drld.registry.upkeep import Upkeep

from ...registry_factories import FLEET, KEYS, address, events, known, member, registry_spec

AWAY_S = 100
A, Z = KEYS.member("a"), KEYS.member("z")


class FakeEtcd:
    """Takes all writes; no limiter is alive."""

    def __init__(self) -> None:
        self.removed: list[str] = []
        self.expired = False

    async def grant(self, ttl_s: int) -> int:
        return 1

    async def keep_alive(self, lease: int) -> bool:
        expired, self.expired = self.expired, False
        return not expired

    async def get(self, key: str) -> Event | None:
        return None

    async def read(self, span: object) -> tuple[list[Event], int]:
        return [], 1

    async def commit(
        self, changes: Mapping[str, bytes | None], where: Mapping[str, int], lease: int = 0
    ) -> int:
        self.removed += [key for key, value in changes.items() if value is None]
        return 1


@asynccontextmanager
async def watching(registry: Registry, etcd: FakeEtcd) -> AsyncIterator[Upkeep]:
    """A limiter that forgets absent members, in a fleet of two."""
    there: dict[str, bytes | None] = {KEYS.fleet: FLEET.encode(), A: member(1), Z: member(9)}
    registry.resync(events(there, 10), 10)
    spec = registry_spec(forget_after_ns=AWAY_S * 10**9)
    upkeep = Upkeep(cast(Etcd, etcd), registry, spec, address(1), lambda: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(upkeep.run)
        yield upkeep
        nursery.cancel_scope.cancel()


async def test_a_removed_limiter_that_returns_is_away_since_its_removal(
    autojump_clock: trio.testing.MockClock,
) -> None:
    registry, etcd = known("a"), FakeEtcd()
    async with watching(registry, etcd) as upkeep:
        await trio.sleep(0.9 * AWAY_S)
        registry.apply([Event(Z, None, 11)])
        registry.apply([Event(Z, member(9), 12)])
        upkeep.wake()
        await trio.sleep(0.9 * AWAY_S)
        assert etcd.removed == []
        await trio.sleep(0.2 * AWAY_S)
        assert Z in etcd.removed


async def test_a_limiter_that_stood_still_does_not_know_absences_meanwhile(
    autojump_clock: trio.testing.MockClock,
) -> None:
    etcd = FakeEtcd()
    async with watching(known("a"), etcd):
        await trio.sleep(0.5 * AWAY_S)
        etcd.expired = True
        await trio.sleep(0.9 * AWAY_S)
        assert etcd.removed == []
        await trio.sleep(0.2 * AWAY_S)
        assert Z in etcd.removed
