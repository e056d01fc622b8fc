"""The limiter's side of the registry: follows it, and keeps this limiter registered (a shell).

The agent has one session with one etcd server at a time. A session reads the followed range and
watches it. It renews the lease, registers, restores values that etcd has lost, and writes the
revision that this limiter has applied. Any failure ends the session, and the next one begins from
the start with the next server. The known configuration stays in force meanwhile. So no state of the
protocol outlives a failure.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random, SystemRandom

import trio

from drld.control.schema.status import RegistryReport
from drld.errors import ConfigError, RegistryError
from drld.log_event import event
from drld.registry import cache
from drld.registry.applier import Applier
from drld.registry.etcd import CompactedError, Etcd
from drld.registry.model.keys import Keys
from drld.registry.model.state import Event, Registry
from drld.registry.records import Readers, write_members
from drld.registry.upkeep import Upkeep
from drld.spec import LimiterSpec

log = logging.getLogger("drld.registry")

SHORTEST_RETRY_S, LONGEST_RETRY_S = 0.2, 10.0
APPLY_INTERVAL_S = 0.1
"""Pause between two changes of the configuration, as an operator adds many limits in steps."""
RETRY_REFUSED_S = 60.0
"""Time until the next try of limits that the host refused, or of a cache that was not written."""
READ_BATCH = 50
"""Values of a whole registry that are read between two turns of other tasks: some 6 ms."""
LEAVE_TIMEOUT_S = 5.0
SHOWN = 20
"""Most members, and most problems, in a report."""


class Agent:
    """The registry of one daemon."""

    def __init__(
        self,
        file: LimiterSpec,
        path: str,
        prepare: Callable[[LimiterSpec], Awaitable[None]],
        reconfigure: Callable[[LimiterSpec], None],
    ) -> None:
        """Begin with the cache, the state of the registry before the last restart.

        `prepare` does the slow part of `reconfigure`, which puts a configuration into force, or
        raises ConfigError or DatapathError.
        """
        assert file.registry is not None
        self.known = trio.Event()
        """Set once the members of the fleet are known."""
        self._spec = file.registry
        self._name, self._listen = file.name, file.listen
        self._keys = Keys(file.registry.fleet)
        self._registry = Registry(
            self._keys, file.name, file.listen, Readers(file.gossip.interval_ns, file.registry)
        )
        self._applier = Applier(
            file, path, self._registry, self._keys, prepare=prepare, reconfigure=reconfigure
        )
        self._rng = Random(SystemRandom().getrandbits(64))
        self._upkeep: Upkeep | None = None
        """The upkeep of the last session."""
        self._endpoint: str | None = None
        """The server of this or the last session; None: all servers failed."""
        self._error: str | None = None
        self._since = time.time()
        self._failures = 0
        """Sessions that failed in a row."""
        self._cache = cache.Cache(file.registry.cache, self._keys)
        self._warned = False
        """Whether the present loss in etcd was logged."""
        self._dirty = trio.Event()
        remembered = cache.load(file.registry.cache, self._keys)
        if remembered is not None:
            self._registry.recall(*remembered)
            if remembered.fleet is not None:
                self.known.set()

    # Called by the daemon.

    def spec(self) -> LimiterSpec:
        """The configuration merged from file and registry."""
        return self._applier.merged()

    def started(self, spec: LimiterSpec) -> None:
        """Note that this configuration is in force; from now on `reconfigure` changes it."""
        self._applier.in_force = spec
        self._dirty.set()

    @property
    def revision(self) -> int:
        """Revision of etcd whose values are known here."""
        return self._registry.seen

    async def reload(self, file: LimiterSpec, reconfigure: Callable[[LimiterSpec], None]) -> None:
        """Put a changed file into force with this `reconfigure`.

        Raises:
            ConfigError, DatapathError: the file is refused; the old configuration stays.
        """
        await self._applier.reload(file, reconfigure)
        self._dirty.set()

    def report(self) -> RegistryReport:
        """The state of the registry, for the control API."""
        registry, problems, known = self._registry, self._problems(), self.known.is_set()
        return RegistryReport(
            fleet=self._spec.fleet,
            state="connected" if self._endpoint else "unreachable" if known else "waiting",
            since=self._since,
            endpoint=self._endpoint,
            error=self._error,
            revision=self._applier.revision,
            members=len(registry.members.keys() | registry.presumed.keys() | {self._name}),
            limits=len(registry.limits),
            joined=registry.joined,
            waiting_for=registry.waiting_for[:SHOWN],
            lost=registry.lost,
            problems={key: problems[key] for key in self._keys.by_weight(problems)[:SHOWN]},
            problem_count=len(problems),
            rejected=registry.rejected,
            cache_error=self._cache.error,
        )

    async def run(self) -> None:
        """Follow the registry until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._apply_changes)
            nursery.start_soon(self._follow)

    async def leave(self) -> None:
        """Stop being a member; call it once the limiter forwards no packets any more."""
        if self._upkeep is None:
            # This incarnation never registered; an earlier, killed one may have.
            if self._name not in self._registry.members:
                return
        elif self._upkeep.taken is not None:
            return
        # The last server first; each gets a part of the time.
        endpoints = sorted(self._spec.endpoints, key=lambda known: known != self._endpoint)
        ends = trio.current_time() + LEAVE_TIMEOUT_S
        while endpoints:
            endpoint, *rest = endpoints
            with trio.move_on_after((ends - trio.current_time()) / len(endpoints)):
                try:
                    await self._leave_at(endpoint)
                except RegistryError as error:
                    self._error = str(error)
                else:
                    left = event("registry.left", fleet=self._spec.fleet)
                    log.info("left fleet %s", self._spec.fleet, extra=left)
                    return
            endpoints = rest
        log.warning(
            "%s stays a member of fleet %s, which keeps its share for it: cannot tell etcd (%s); "
            "to remove it: drlctl fleet remove %s",
            *(self._name, self._spec.fleet, self._error or "no answer", self._name),
            extra=event("registry.stays", fleet=self._spec.fleet, reason=self._error),
        )

    async def _leave_at(self, endpoint: str) -> None:
        key, alive = self._keys.member(self._name), self._keys.alive(self._name)
        async with Etcd(endpoint, self._spec) as etcd:
            item = await etcd.get(key)
            # Before etcd's answer: the next start must not count on its old membership.
            self._registry.forget(self._name)
            await self._save()
            while item is not None and self._is_ours(item):
                where = {key: item.revision}
                if await etcd.commit({key: None, alive: None}, where) is not None:
                    return
                # An earlier request of ours changed the key meanwhile.
                item = await etcd.get(key)

    def _is_ours(self, item: Event) -> bool:
        """Whether a member of our name is this limiter, and not its replacement."""
        try:
            return Readers.member(item.value or b"", item.key).address == self._listen
        except ConfigError:
            return True

    # Following.

    async def _follow(self) -> None:
        servers = len(self._spec.endpoints)
        # A random first server spreads the fleet over all of them.
        retry_s, turn = SHORTEST_RETRY_S, self._rng.randrange(servers)
        while True:
            try:
                async with Etcd(self._spec.endpoints[turn % servers], self._spec) as etcd:
                    await self._session(etcd)
            except CompactedError:
                pass  # The next session reads everything again.
            except RegistryError as error:
                turn += 1
                if self._endpoint is not None:
                    retry_s = SHORTEST_RETRY_S
                self._disconnected(str(error))
                if self._failures % servers:
                    continue  # Try the next server at once.
            await trio.sleep(retry_s * self._rng.uniform(0.5, 1))
            retry_s = min(2 * retry_s, LONGEST_RETRY_S)

    async def _session(self, etcd: Etcd) -> None:
        """Follow one server until a failure.

        Raises:
            RegistryError: the failure.
        """
        registry = self._registry
        items, revision = await etcd.read(self._keys.followed)
        past = None
        if registry.in_question(items, revision):
            with contextlib.suppress(CompactedError):
                then, _ = await etcd.read(self._keys.followed, registry.revision)
                past = [item.key for item in then]
        for start in range(0, len(items), READ_BATCH):
            registry.read_ahead(items[start : start + READ_BATCH])
            await trio.sleep(0)
        registry.resync(items, revision, past)
        if not registry.continuous:
            self._applier.another_registry()
        self._warn_of_loss()
        self.known.set()
        self._dirty.set()
        failures: list[RegistryError] = []
        self._upkeep = upkeep = Upkeep(
            etcd, registry, self._spec, self._listen, partial(self._connected, etcd.endpoint)
        )
        self._tell(upkeep)
        watch = partial(etcd.watch, self._keys.followed, revision + 1, self._told)
        async with trio.open_nursery() as nursery:

            async def guard(task: Callable[[], Awaitable[None]]) -> None:
                try:
                    await task()
                except RegistryError as error:
                    failures.append(error)
                    nursery.cancel_scope.cancel()

            nursery.start_soon(guard, watch)
            nursery.start_soon(guard, upkeep.run)
        raise failures[0]

    def _told(self, events: list[Event]) -> None:
        self._registry.apply(events)
        self._warn_of_loss()
        self._dirty.set()

    def _connected(self, endpoint: str) -> None:
        """The registry is read, and our values are written."""
        self._failures = 0
        self._applier.log_problems(self._problems())
        if self._endpoint == endpoint:
            return
        registry = self._registry
        log.info(
            "fleet %s at %s: members: %d, limits: %d",
            *(self._spec.fleet, endpoint, len(registry.members), len(registry.limits)),
            extra=event("registry.connected", old=self._endpoint, new=endpoint),
        )
        if self._endpoint is None:
            self._since = time.time()
        self._endpoint, self._error = endpoint, None

    def _warn_of_loss(self) -> None:
        lost = self._registry.lost
        if lost and not self._warned:
            log.warning(
                "etcd has lost members and limits of fleet %s: %d; they stay in force and are "
                "put there again",
                *(self._spec.fleet, lost),
                extra=event("registry.lost", count=lost),
            )
        self._warned = lost > 0

    def _disconnected(self, error: str) -> None:
        self._failures += 1
        self._error = error
        if self._failures == len(self._spec.endpoints):
            self._endpoint, self._since = None, time.time()
            log.warning(
                "fleet %s: no etcd server can be used: %s; %s",
                *(self._spec.fleet, error, self._meanwhile()),
                extra=event("registry.unreachable", reason=error),
            )

    def _meanwhile(self) -> str:
        registry = self._registry
        if not self.known.is_set():
            return "waiting, and limiting nothing"
        if registry.seen or self._name in registry.members:
            return "going on with the fleet as last known"
        return (
            f"{self._name} was not a member, so no limiter counts it: enforcing the "
            f"static share of {self.report()['members']} limiters"
        )

    # Putting into force.

    async def _apply_changes(self) -> None:
        while True:
            with trio.move_on_after(RETRY_REFUSED_S):
                await self._dirty.wait()
            again = self._applier.host_refuses or self._cache.error is not None
            if self._applier.in_force is not None and (self._dirty.is_set() or again):
                self._dirty = trio.Event()
                await self._applier.apply()
                self._applier.log_problems(self._problems())
                await self._save()
                if self._upkeep is not None:
                    self._tell(self._upkeep)
            await trio.sleep(APPLY_INTERVAL_S)

    def _tell(self, upkeep: Upkeep) -> None:
        # A limiter that cannot name all members it does not count reports that it counts none.
        applied = 0 if self._registry.overwhelmed else self._applier.revision
        upkeep.tell(applied, self._problems())

    def _problems(self) -> dict[str, str]:
        problems = self._applier.problems()
        if self._upkeep is not None and self._upkeep.taken is not None:
            problems[self._keys.alive(self._name)] = self._upkeep.taken
        return problems

    async def _save(self) -> None:
        registry = self._registry
        former = write_members(self._keys, registry.former)
        await self._cache.keep(
            cache.Remembered(registry.fleet, registry.revision, registry.knowledge(), former)
        )
