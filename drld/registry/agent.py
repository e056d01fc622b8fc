"""The limiter's side of the registry: follows it, and keeps this limiter registered (a shell).

One session with one etcd server at a time. It reads the followed range, watches it from there on,
and does what is due: renew the lease, register, restore what etcd has lost, tell what has been
applied. Whatever goes wrong ends the session, and the next one begins from the start with the next
server; what is known stays in force meanwhile. So there is no state of the protocol to get wrong.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from random import Random, SystemRandom

import trio

from drld.control.schema import RegistryReport
from drld.errors import ConfigError, DatapathError, RegistryError
from drld.registry import cache
from drld.registry.etcd import CompactedError, Etcd
from drld.registry.model.keys import Keys, source
from drld.registry.model.merge import merge
from drld.registry.model.state import Event, Registry
from drld.registry.model.takeover import take_over
from drld.registry.records import Readers, write_members
from drld.registry.upkeep import Upkeep
from drld.spec import LimiterSpec

log = logging.getLogger("drld.registry")

SHORTEST_RETRY_S, LONGEST_RETRY_S = 0.2, 10.0
APPLY_INTERVAL_S = 0.1
"""Between two changes of the configuration: whoever adds many limits adds them in a few steps."""
RETRY_REFUSED_S = 60.0
"""When to try again what the host refused, a cache on a full disk too."""
LEAVE_TIMEOUT_S = 5.0
SHOWN = 20
"""Members, problems in a report."""


class Agent:
    """What a daemon with a registry has beside its engine."""

    def __init__(
        self,
        file: LimiterSpec,
        path: str,
        prepare: Callable[[LimiterSpec], Awaitable[None]],
        reconfigure: Callable[[LimiterSpec], None],
    ) -> None:
        """Remember what the registry said before the last restart.

        `reconfigure` puts a configuration into force, or raises ConfigError or DatapathError;
        `prepare` does what takes long of it.
        """
        assert file.registry is not None
        self.file = file
        self.known = trio.Event()
        """Set once it is known who belongs to the fleet."""
        self._path = path
        self._spec = file.registry
        self._keys = Keys(file.registry.fleet)
        self._prepare = prepare
        self._reconfigure = reconfigure
        self._changing = trio.Lock()
        """Held from a preparation until what was prepared is in force."""
        self._registry = Registry(
            self._keys, file.name, file.listen, Readers(file.gossip.interval_ns, file.registry)
        )
        self._rng = Random(SystemRandom().getrandbits(64))
        self._in_force: LimiterSpec | None = None
        self._applied = 0
        self._histories = 0
        """How often etcd had another registry than before."""
        self._refused: dict[str, str] = {}
        """Keys whose value is fine, but not here."""
        self._complaints: dict[str, str] = {}
        """What was logged of all that is not in force."""
        self._host_refuses = False
        self._upkeep: Upkeep | None = None
        """Of the last session."""
        self._endpoint: str | None = None
        """The server that we follow, or followed last, until none can be used."""
        self._error: str | None = None
        self._since = time.time()
        self._failures = 0
        """Servers in a row that could not be used."""
        self._cache = cache.Cache(file.registry.cache, self._keys)
        self._warned = False
        """Of what etcd has lost."""
        self._dirty = trio.Event()
        remembered = cache.load(file.registry.cache, self._keys)
        if remembered is not None:
            self._registry.recall(*remembered)
            if remembered.fleet is not None:
                self.known.set()

    # What the daemon asks.

    def spec(self) -> LimiterSpec:
        """The configuration that file and registry ask for."""
        return merge(self.file, self._path, self._registry).spec

    def started(self, spec: LimiterSpec) -> None:
        """This configuration is in force: from now on `reconfigure` changes it."""
        self._in_force = spec
        self._dirty.set()

    async def reload(self, file: LimiterSpec, reconfigure: Callable[[LimiterSpec], None]) -> None:
        """Take over a changed file, by this `reconfigure`.

        Raises:
            ConfigError, DatapathError: it cannot be used; what is in force stays.
        """
        if file.registry != self.file.registry:
            raise ConfigError(
                [f"{self._path}: registry: cannot change while the daemon runs: restart it"]
            )
        async with self._changing:
            old, new = self.file.gossip.interval_ns, file.gossip.interval_ns
            if new != old:
                self._registry.read_by(Readers(new, self._spec))
            try:
                await self._reload(file, reconfigure)
            except BaseException:
                if new != old:
                    self._registry.read_by(Readers(old, self._spec))
                raise

    async def _reload(self, file: LimiterSpec, reconfigure: Callable[[LimiterSpec], None]) -> None:
        in_force = self._in_force
        if in_force is None:
            raise ConfigError(
                [f"{self._path}: registry: waiting to hear who belongs to the fleet: nothing runs"]
            )
        of_fleet = [limit for limit in in_force.limits if limit not in self.file.limits]
        merged = merge(file, self._path, self._registry, of_fleet).spec
        # The file as a whole, with the fleet's limits that the host does not refuse.
        own = {limit.id for limit in file.limits}
        before = {limit.id for limit in in_force.limits}
        usable = [limit for limit in merged.limits if limit.id in own | before]
        spec = replace(merged, limits=tuple(usable))
        await self._prepare(spec)
        reconfigure(spec)
        self.file, self._in_force = file, spec
        self._dirty.set()

    def report(self) -> RegistryReport:
        """How it stands with the registry."""
        registry, problems = self._registry, self._problems()
        return RegistryReport(
            fleet=self._spec.fleet,
            state=(
                "connected"
                if self._endpoint
                else "unreachable"
                if self.known.is_set()
                else "waiting"
            ),
            since=self._since,
            endpoint=self._endpoint,
            error=self._error,
            revision=self._applied,
            members=len(registry.members.keys() | registry.presumed.keys() | {self.file.name}),
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
        """Stop being a member: to be called when the limiter forwards nothing any more."""
        if self._upkeep is None:
            # Not in this life; perhaps in one that was killed.
            if self.file.name not in self._registry.members:
                return
        elif self._upkeep.taken is not None:
            return
        # First the one that answered last; one that says nothing leaves time for the others.
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
                    log.info("left fleet %s", self._spec.fleet)
                    return
            endpoints = rest
        log.warning(
            "%s stays a member of fleet %s, which keeps its share for it: cannot tell etcd (%s); "
            "to remove it: drlctl fleet remove %s",
            *(self.file.name, self._spec.fleet, self._error or "no answer", self.file.name),
        )

    async def _leave_at(self, endpoint: str) -> None:
        key, alive = self._keys.member(self.file.name), self._keys.alive(self.file.name)
        async with Etcd(endpoint, self._spec) as etcd:
            item = await etcd.get(key)
            # Before the others do: a start while etcd is away must not count on them.
            self._registry.forget(self.file.name)
            await self._save()
            while item is not None and self._is_ours(item):
                where = {key: item.revision}
                if await etcd.commit({key: None, alive: None}, where) is not None:
                    return
                # What we had asked for last was done only now.
                item = await etcd.get(key)

    def _is_ours(self, item: Event) -> bool:
        """Whether a member of our name is this limiter, and not one that came in the meantime."""
        try:
            return Readers.member(item.value or b"", item.key).address == self.file.listen
        except ConfigError:
            return True

    # Following.

    async def _follow(self) -> None:
        servers = len(self._spec.endpoints)
        # A fleet spreads over all of them.
        retry_s, turn = SHORTEST_RETRY_S, self._rng.randrange(servers)
        while True:
            try:
                async with Etcd(self._spec.endpoints[turn % servers], self._spec) as etcd:
                    await self._session(etcd)
            except CompactedError:
                pass  # The next session reads everything, and goes on from there.
            except RegistryError as error:
                turn += 1
                if self._endpoint is not None:
                    retry_s = SHORTEST_RETRY_S
                self._disconnected(str(error))
                if self._failures % servers:
                    continue  # Another may be there.
            await trio.sleep(retry_s * self._rng.uniform(0.5, 1))
            retry_s = min(2 * retry_s, LONGEST_RETRY_S)

    async def _session(self, etcd: Etcd) -> None:
        """Follow one server for as long as that goes well.

        Raises:
            RegistryError: it does not.
        """
        registry = self._registry
        items, revision = await etcd.read(self._keys.followed)
        past = None
        if registry.in_question(items, revision):
            with contextlib.suppress(CompactedError):
                then, _ = await etcd.read(self._keys.followed, registry.revision)
                past = [item.key for item in then]
        registry.resync(items, revision, past)
        if not registry.continuous:
            self._applied = 0  # A revision of another registry.
            self._histories += 1
        self._warn_of_loss()
        self.known.set()
        self._dirty.set()
        failures: list[RegistryError] = []
        self._upkeep = upkeep = Upkeep(
            etcd, registry, self._spec, self.file.listen, partial(self._connected, etcd.endpoint)
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

    def _told(self, events: list[Event], revision: int) -> None:
        self._registry.apply(events, revision)
        self._warn_of_loss()
        self._dirty.set()

    def _connected(self, endpoint: str) -> None:
        """What is known is read, and what we have to say is written."""
        self._failures = 0
        self._complain()
        if self._endpoint == endpoint:
            return
        registry = self._registry
        log.info(
            "fleet %s at %s: members: %d, limits: %d",
            *(self._spec.fleet, endpoint, len(registry.members), len(registry.limits)),
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
            )
        self._warned = lost > 0

    def _disconnected(self, error: str) -> None:
        self._failures += 1
        self._error = error
        if self._failures == len(self._spec.endpoints):
            self._endpoint, self._since = None, time.time()
            log.warning(
                "fleet %s: no etcd server can be used: %s; %s",
                self._spec.fleet,
                error,
                self._meanwhile(),
            )

    def _meanwhile(self) -> str:
        registry = self._registry
        if not self.known.is_set():
            return "waiting, and limiting nothing"
        if registry.seen or self.file.name in registry.members:
            return "going on with the fleet as last known"
        return (
            f"{self.file.name} was no member at last, so nobody counts it: going on with the "
            f"static share of {self.report()['members']} limiters"
        )

    # Putting into force.

    async def _apply_changes(self) -> None:
        while True:
            with trio.move_on_after(RETRY_REFUSED_S):
                await self._dirty.wait()
            again = self._host_refuses or self._cache.error is not None
            if self._in_force is not None and (self._dirty.is_set() or again):
                self._dirty = trio.Event()
                async with self._changing:
                    await self._apply(self._in_force)
                await self._save()
                if self._upkeep is not None:
                    self._tell(self._upkeep)
            await trio.sleep(APPLY_INTERVAL_S)

    async def _apply(self, in_force: LimiterSpec) -> None:
        registry = self._registry
        # It may change again while this comes into force.
        spec, problems = merge(self.file, self._path, registry, in_force.limits)
        seen, history = registry.seen, self._histories
        refused = dict(problems)
        try:
            _, host = await take_over(in_force, spec, self._put_in_force)
        except (ConfigError, DatapathError) as error:
            refused[self._keys.fleet] = f"the fleet as of revision {seen}: {error}"
            self._host_refuses = True
        else:
            self._host_refuses = bool(host)
            for limit_id, reason in host.items():
                key = self._keys.limit(limit_id)
                refused[key] = f"{source(key)}: {reason}"
            if history == self._histories:
                self._applied = seen
        self._refused = refused
        self._complain()

    def _complain(self) -> None:
        """Log what is not in force, once."""
        before, self._complaints = self._complaints, self._problems()
        new = [text for key, text in self._complaints.items() if before.get(key) != text]
        for text in new[:SHOWN]:
            log.warning("not in force: %s", text)
        if len(new) > SHOWN:
            log.warning("not in force: %d more", len(new) - SHOWN)

    async def _put_in_force(self, spec: LimiterSpec) -> None:
        assert self._in_force is not None
        if spec.limits != self._in_force.limits:
            await self._prepare(spec)
        self._reconfigure(spec)
        self._in_force = spec

    def _tell(self, upkeep: Upkeep) -> None:
        # Who does not know whom it does not count says that it counts nobody.
        applied = 0 if self._registry.overwhelmed else self._applied
        upkeep.tell(applied, self._problems())

    def _problems(self) -> dict[str, str]:
        problems = {**self._registry.problems, **self._refused}
        if self._upkeep is not None and self._upkeep.taken is not None:
            problems[self._keys.alive(self.file.name)] = self._upkeep.taken
        return problems

    async def _save(self) -> None:
        registry = self._registry
        former = write_members(self._keys, registry.former)
        await self._cache.keep(
            cache.Remembered(registry.fleet, registry.revision, registry.knowledge(), former)
        )
