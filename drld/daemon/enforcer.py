"""The enforcement of a configuration: the engine, the planes and the gossip socket.

The configuration in force is made of the files, the registry and unsaved changes. A change takes
effect as a whole: if it is refused, the configuration before it stays in force.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from random import Random, SystemRandom
from time import monotonic_ns

import trio

from drld.config import remarks
from drld.daemon.history import History
from drld.daemon.origin import Origin
from drld.daemon.running_plane import RunningPlane, host_remarks
from drld.engine import Engine
from drld.errors import DatapathError
from drld.fleet_rates import FleetRates
from drld.gossip.transport import Transport
from drld.gossip.wire.counts_codec import Counts
from drld.gossip.wire.keyring import KeyRing
from drld.log_event import event
from drld.spec import LimiterSpec, LimitSpec

log = logging.getLogger("drld")


class Enforcer:
    """Enforces one configuration after another."""

    def __init__(
        self,
        spec: LimiterSpec,
        transport: Transport,
        planes: Sequence[RunningPlane],
        history: History,
    ) -> None:
        """Enforce nothing before `start`."""
        self.transport = transport
        self.planes = planes
        self.rates = FleetRates(self._counted)
        self.engine = self._engine(spec)
        self.changed = trio.Event()
        """An event that the next change of the configuration sets; each change makes another
        event."""
        self._history = history
        self._remarks: list[str] = []
        """Remarks on the configuration in force; they are in the log."""

    def start(self, spec: LimiterSpec, own: Collection[LimitSpec]) -> None:
        """Begin to enforce a configuration, whose limits other than `own` are the registry's.

        Raises:
            DatapathError: the host refuses a limit of `own`, or any datapath; nothing is left
                behind.
        """
        self._put(spec, partial(self._attach, spec, own))

    async def prepare(self, spec: LimiterSpec) -> None:
        """Do the slow part of `take_over` while ticks go on; one call at a time."""
        for plane in self.planes:
            await plane.prepare(spec)

    def take_over(
        self,
        spec: LimiterSpec,
        *,
        origin: Origin,
        reattach: bool = True,
        save: Callable[[], bool] = lambda: False,
    ) -> None:
        """Put another configuration into force; see `Engine.reconfigure`.

        `save` is called as soon as it is in force, and returns whether it is saved.

        Raises:
            ConfigError, DatapathError: it is refused; the one before it stays in force.
        """
        before = self.engine.spec.limits
        self._put(spec, lambda: self.engine.reconfigure(spec, monotonic_ns(), reattach=reattach))
        origin = replace(origin, saved=save())
        self._history.note(before, spec.limits, origin, time.time())
        self.changed.set()
        self.changed = trio.Event()
        self.log_remarks()

    def change_ring(self, change: Callable[[KeyRing], KeyRing]) -> None:
        """Put the keys into force that `change` makes of those in force.

        Raises:
            ConfigError: raised by `change`; nothing is changed.
        """
        ring = change(self.transport.ring)
        self.transport.set_ring(ring)
        for plane in self.planes:
            plane.set_ring(self.engine.spec, ring)
        ids, use = sorted(ring.keys), ring.use
        log.info("keys: %s, in use: %d", ids, use, extra=event("keys.changed", ids=ids, use=use))

    def limit_names(self) -> set[str]:
        """The names of the limits in force."""
        return {managed.limiter.policy.name for managed in self.engine.limits.values()}

    def log_remarks(self) -> None:
        """Log what could be better in the configuration in force, each remark once."""
        spec = self.engine.spec
        before, self._remarks = self._remarks, [*remarks(spec), *host_remarks(spec)]
        for line in self._remarks:
            if line not in before:
                key = line.partition(":")[0]
                log.warning("%s", line, extra=event("config.remark", key, key=key))

    def _put(self, spec: LimiterSpec, attach: Callable[[], None]) -> None:
        """Have each plane take part: the first plane calls the second, and the last `attach`."""
        for plane in reversed(self.planes):
            attach = partial(plane.put, spec, attach)
        attach()

    def _attach(self, spec: LimiterSpec, own: Collection[LimitSpec]) -> None:
        """Attach the datapaths, without those limits of the registry that the host refuses.

        If the host does not say which these are, without all of them: `Agent.started` has them
        tried one by one.

        Raises:
            DatapathError: the host refuses a limit of `own`, or any datapath.
        """
        while True:
            self.transport.update_peers({peer.name: peer.address for peer in spec.peers})
            self.engine = self._engine(spec)
            try:
                self.engine.start(monotonic_ns())
            except DatapathError as error:
                optional = {limit.id for limit in spec.limits if limit not in own}
                refused = optional & error.limits.keys() or optional
                if not refused:
                    raise
                usable = tuple(limit for limit in spec.limits if limit.id not in refused)
                spec = replace(spec, limits=usable)
            else:
                return

    def _engine(self, spec: LimiterSpec) -> Engine:
        rng = Random(SystemRandom().getrandbits(64))
        return Engine(spec, [*self.planes, self.rates], self.transport, rng)

    def _counted(self, limit_id: int, now_ns: int) -> Counts | None:
        """See `Engine.counted`; `start` may make several engines."""
        return self.engine.counted(limit_id, now_ns)
