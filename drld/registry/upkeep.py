"""A limiter's duties in a session with etcd: stay registered, and restore lost values.

Every change is idempotent and guarded by revisions: etcd refuses a change decided on an old state.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping

import trio

from drld.errors import ConfigError
from drld.log_event import event
from drld.model import NS_PER_S
from drld.registry.etcd import Etcd
from drld.registry.model.keys import source
from drld.registry.model.state import Event, Registry
from drld.registry.records import read_alive, write_alive, write_member
from drld.spec import RegistrySpec, format_endpoint

log = logging.getLogger("drld.registry")

SOON_S = 0.25
"""Time until the next check while waiting for a change that causes no event."""
RESTORED_AT_ONCE = 500


class Upkeep:
    """The duties of one session."""

    def __init__(
        self,
        etcd: Etcd,
        registry: Registry,
        spec: RegistrySpec,
        address: tuple[str, int],
        done: Callable[[], None],
    ) -> None:
        """`done` is called whenever all due duties are done."""
        self.taken: str | None = None
        """The reason if another limiter is registered under our name; else None."""
        self._etcd = etcd
        self._registry = registry
        self._keys = registry.keys
        self._spec = spec
        self._address = address
        self._done = done
        self._ttl_s = spec.ttl_ns / NS_PER_S
        self._alive = write_alive(registry.keys, address, 0, {})
        self._told: bytes | None = None
        self._lease = 0
        self._renew_at = 0.0
        self._absent_since: dict[tuple[str, int], float] = {}
        """The members that were present, each with the revision of its key: one that registers
        again differs."""
        self._woken = trio.Event()

    def wake(self) -> None:
        """Check the duties again: the registry has changed."""
        self._woken.set()

    def tell(self, applied: int, refused: Mapping[str, str]) -> None:
        """Set this limiter's report."""
        self._alive = write_alive(self._keys, self._address, applied, refused)
        self.wake()

    async def run(self) -> None:
        """Do all duties when they are due, until cancelled.

        Raises:
            RegistryError: a request failed.
        """
        while True:
            self._woken = trio.Event()
            await self._renew()
            if await self._say_alive():
                await self._restore()
                await self._register()
                if not self._registry.joined:
                    await self._ask_who_knows_us()
                    await self._register()
                if self._spec.forget_after_ns is not None:
                    await self._forget(self._spec.forget_after_ns / NS_PER_S)
            self._done()
            wait_s = self._renew_at - trio.current_time()
            if self.taken is None and (self._registry.lost or not self._registry.joined):
                wait_s = SOON_S
            with trio.move_on_after(max(wait_s, 0)):
                await self._woken.wait()

    async def _renew(self) -> None:
        now = trio.current_time()
        if self._lease and now < self._renew_at:
            return
        if self._lease and not await self._etcd.keep_alive(self._lease):
            self._lease = 0
            self._absent_since.clear()  # This daemon stood still, and watched no peer.
        if not self._lease:
            self._lease = await self._etcd.grant(round(self._ttl_s))
            self._told = None
        elif (item := await self._said()) is None or item.value != self._told:
            self._told = None  # Another client has changed our report.
        self._renew_at = now + self._ttl_s / 3

    async def _said(self) -> Event | None:
        return await self._etcd.get(self._keys.alive(self._registry.name))

    async def _say_alive(self) -> bool:
        """Write our report, unless another limiter of our name is alive; return whether it is ours.

        The report reserves the name: of two limiters with one name, the first gets it.
        """
        said = self._alive
        if said == self._told:
            return True
        item = await self._said()
        self.taken = self._taken_by(item)
        if self.taken is not None:
            return False
        key = self._keys.alive(self._registry.name)
        where = {key: item.revision if item is not None else 0}
        if await self._etcd.commit({key: said}, where, self._lease) is None:
            self.wake()  # Another client was faster: check again.
            return False
        self._told = said
        return True

    def _taken_by(self, item: Event | None) -> str | None:
        """The reason why a report under our name is another limiter's; None if it is not."""
        try:
            address = read_alive(item.value or b"", item.key).address if item else self._address
        except ConfigError:
            return None
        if item is None or address == self._address:
            return None
        return (
            f"{source(item.key)}: address: {format_endpoint(*address)!r}: another limiter "
            f"has the name {self._registry.name!r} (limiter.name): not registered"
        )

    async def _restore(self) -> None:
        """Write lost values to etcd again; it does not matter if another limiter is faster."""
        for key, value in self._registry.restoration()[:RESTORED_AT_ONCE]:
            await self._etcd.commit({key: value}, {key: 0})
        if self._registry.founding:
            identity = self._registry.fleet or secrets.token_hex(16)
            fleet = self._keys.fleet
            await self._etcd.commit({fleet: identity.encode()}, {fleet: 0})

    async def _register(self) -> None:
        wanted = self._registry.registration(int(time.time()))
        if wanted is not None:
            member, revision = wanted
            key = self._keys.member(self._registry.name)
            await self._etcd.commit({key: write_member(member)}, {key: revision})

    async def _ask_who_knows_us(self) -> None:
        ours = self._registry.name
        items, _ = await self._etcd.read(self._keys.all_alive)
        for item in items:
            name = self._keys.alive_of(item.key)
            try:
                said = read_alive(item.value or b"", item.key)
            except ConfigError:
                continue
            if name is not None and ours not in said.uncounted:
                self._registry.acknowledge(name, said.applied)

    async def _forget(self, after_s: float) -> None:
        """Remove members that were absent for this time while we watched."""
        items, _ = await self._etcd.read(self._keys.all_alive)
        now = trio.current_time()
        alive = {self._keys.alive_of(item.key) for item in items} | {self._registry.name}
        self._absent_since = {
            (name, held.revision): self._absent_since.get((name, held.revision), now)
            for name, held in self._registry.members.items()
            if name not in alive
        }
        for (name, revision), since in self._absent_since.items():
            if revision and now - since >= after_s:
                key = self._keys.member(name)
                where = {key: revision, self._keys.alive(name): 0}
                if await self._etcd.commit({key: None}, where) is not None:
                    log.warning(
                        "%s is removed from the fleet: etcd has not heard from it for %.0f s "
                        "(registry.forget_after)",
                        *(name, after_s),
                        extra=event("registry.forgotten", name, peer=name),
                    )
