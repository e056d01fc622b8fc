"""Puts the fleet's configuration into force on this host: the file merged with the registry.

Values that cannot be used, or that the host refuses, are left out, logged once and reported. All
other values are in force.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

import trio

from drld.errors import ConfigError, DatapathError
from drld.log_event import event
from drld.registry.model.keys import Keys, source
from drld.registry.model.merge import merge
from drld.registry.model.state import Registry
from drld.registry.model.takeover import take_over
from drld.registry.records import Readers
from drld.spec import LimiterSpec

log = logging.getLogger("drld.registry")

SHOWN = 20
"""Most problems that are logged one by one."""


class Applier:
    """The configuration that is in force, and the values of the registry that are not."""

    def __init__(
        self,
        file: LimiterSpec,
        path: str,
        registry: Registry,
        keys: Keys,
        *,
        prepare: Callable[[LimiterSpec], Awaitable[None]],
        reconfigure: Callable[[LimiterSpec], None],
    ) -> None:
        """Put nothing into force yet.

        Args:
            file: the configuration of the file, with the table `[registry]`.
            path: the path of the file, for messages.
            registry: the limiter's knowledge of the registry.
            keys: the fleet's keys in etcd.
            prepare: does the slow part of `reconfigure`.
            reconfigure: puts a configuration into force, or raises ConfigError or DatapathError.
        """
        self.file = file
        self.in_force: LimiterSpec | None = None
        self.revision = 0
        """Revision of etcd whose values are in force."""
        self.host_refuses = False
        """Whether the host refused something at the last try."""
        self._path = path
        self._registry = registry
        self._keys = keys
        self._prepare = prepare
        self._reconfigure = reconfigure
        self._changing = trio.Lock()
        """A lock that is held from a preparation until its configuration is in force."""
        self._histories = 0
        """Number of times that etcd had another registry than before."""
        self._refused: dict[str, str] = {}
        """Keys with a valid value that is not in force on this host, and the reasons."""
        self._logged: Mapping[str, str] = {}
        """Reasons of values that are not in force, by key, as they are in the log."""

    def merged(self) -> LimiterSpec:
        """The configuration merged from file and registry."""
        return merge(self.file, self._path, self._registry).spec

    def another_registry(self) -> None:
        """Note that etcd has another registry: the revision in force was one of the old one."""
        self.revision = 0
        self._histories += 1

    async def reload(self, file: LimiterSpec, reconfigure: Callable[[LimiterSpec], None]) -> None:
        """Put a changed file into force with this `reconfigure`.

        Raises:
            ConfigError, DatapathError: the file is refused; the old configuration stays.
        """
        if file.registry is None or file.registry != self.file.registry:
            raise ConfigError(
                [f"{self._path}: registry: cannot change while the daemon runs: restart it"]
            )
        async with self._changing:
            old, new = self.file.gossip.interval_ns, file.gossip.interval_ns
            if new != old:
                self._registry.read_by(Readers(new, file.registry))
            try:
                await self._reload(file, reconfigure)
            except BaseException:
                if new != old:
                    self._registry.read_by(Readers(old, file.registry))
                raise

    async def _reload(self, file: LimiterSpec, reconfigure: Callable[[LimiterSpec], None]) -> None:
        in_force = self.in_force
        if in_force is None:
            raise ConfigError(
                [f"{self._path}: registry: no reload while the members of the fleet are unknown"]
            )
        of_fleet = [limit for limit in in_force.limits if limit not in self.file.limits]
        merged = merge(file, self._path, self._registry, of_fleet).spec
        # The whole file, with those limits of the fleet that are in force here.
        own = {limit.id for limit in file.limits}
        before = {limit.id for limit in in_force.limits}
        usable = [limit for limit in merged.limits if limit.id in own | before]
        spec = replace(merged, limits=tuple(usable))
        await self._prepare(spec)
        reconfigure(spec)
        self.file, self.in_force = file, spec

    async def apply(self) -> None:
        """Put into force what is known of the registry, as far as the host allows."""
        async with self._changing:
            if self.in_force is not None:
                await self._apply(self.in_force)

    async def _apply(self, in_force: LimiterSpec) -> None:
        registry = self._registry
        # The registry may change again during this.
        spec, problems = merge(self.file, self._path, registry, in_force.limits)
        seen, history = registry.seen, self._histories
        refused = dict(problems)
        try:
            _, host = await take_over(in_force, spec, self._put_in_force)
        except (ConfigError, DatapathError) as error:
            refused[self._keys.fleet] = f"the fleet as of revision {seen}: {error}"
            self.host_refuses = True
        else:
            self.host_refuses = bool(host)
            for limit_id, reason in host.items():
                key = self._keys.limit(limit_id)
                refused[key] = f"{source(key)}: {reason}"
            if history == self._histories:
                self.revision = seen
        self._refused = refused

    async def _put_in_force(self, spec: LimiterSpec) -> None:
        assert self.in_force is not None
        if spec.limits != self.in_force.limits:
            await self._prepare(spec)
        self._reconfigure(spec)
        self.in_force = spec

    def problems(self) -> dict[str, str]:
        """The keys whose values are not in force here, and the reasons."""
        return {**self._registry.problems, **self._refused}

    def log_problems(self, problems: Mapping[str, str]) -> None:
        """Log each value that is not in force, once."""
        before, self._logged = self._logged, problems
        new = [text for key, text in problems.items() if before.get(key) != text]
        for text in new[:SHOWN]:
            log.warning(
                "not in force: %s", text, extra=event("registry.refused", text, reason=text)
            )
        if more := max(len(new) - SHOWN, 0):
            log.warning("not in force: %d more", more, extra=event("registry.refused", count=more))
