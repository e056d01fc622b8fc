"""The requests of one daemon: its datapath, its clients, and the socket for limits with keys."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random, SystemRandom
from typing import Any

import trio

from drld.control.schema.status import GossipReport
from drld.daemon.fleet_report import gossip_report
from drld.daemon.running_plane import PlaneContext, RunningPlane
from drld.gossip.wire.keyring import KeyRing
from drld.requests.datapath import RequestDatapath
from drld.requests.front.deltas import Deltas
from drld.requests.front.server import serve_requests
from drld.requests.keyed_limit import Terms
from drld.requests.keyed_limits import KeyedLimits
from drld.requests.keys import fleet_secret
from drld.requests.spec import RequestMatch, RequestsSpec
from drld.spec import LimiterSpec


class RequestPlane(RunningPlane):
    """The limits on requests of one daemon."""

    has_clients = True

    datapath: RequestDatapath

    def __init__(self, context: PlaneContext, spec: LimiterSpec) -> None:
        """Listen nowhere yet."""
        rng = Random(SystemRandom().getrandbits(64))
        terms = Terms(
            origin=rng.getrandbits(32),
            secret=fleet_secret(spec.ring),
            interval_ns=spec.gossip.interval_ns,
            members=len(spec.members),
            wall_ns=time.time_ns() - context.clock(),
        )
        keyed = KeyedLimits(terms, rng)
        secret = SystemRandom().randbytes(32)
        super().__init__(RequestMatch, RequestDatapath(rng, secret, keyed=keyed))
        self._context = context
        self._deltas = Deltas(context.path, keyed, context.clock)

    def put(self, spec: LimiterSpec, attach: Callable[[], None]) -> None:
        """See `RunningPlane.put`: limits with a bucket for each key tell other peers then."""
        ring = self._context.ring()
        undo = self._deltas.prepare(spec, ring)
        try:
            attach()
        except BaseException:
            undo()
            raise
        self._deltas.adopt(spec, ring)

    async def run(self) -> None:
        """See `RunningPlane.run`: exchange the counts of keys with the peers."""
        await self._deltas.run()

    async def serve(self, *, task_status: trio.TaskStatus[Any]) -> None:
        """See `RunningPlane.serve`: answer requests."""
        await serve_requests(
            self.datapath,
            self._settings().listen,
            self._context.turns,
            clock=self._context.clock,
            stopping=self._context.stopping,
            trusted=lambda: self._settings().trusted_proxies,
            tls=lambda: tls.context if (tls := self._settings().tls) else None,
            task_status=task_status,
        )

    def set_ring(self, spec: LimiterSpec, ring: KeyRing) -> None:
        """See `RunningPlane.set_ring`."""
        self._deltas.adopt(spec, ring)

    def deltas_report(self) -> GossipReport | None:
        """See `RunningPlane.deltas_report`; None: there has been no limit with keys."""
        return gossip_report(self._deltas.transport) if self._deltas.transport else None

    def _settings(self) -> RequestsSpec:
        """The table `[requests]` in force."""
        return self._context.files().plane(RequestsSpec)
