"""The daemon: its parts, and the tasks that drive them until it is told to stop.

SIGTERM and SIGINT stop it in order: its servers answer what is open, then the rules are removed,
then the queued packets are decided. SIGHUP reloads the configuration.
"""

from __future__ import annotations

import gc
import logging
import signal
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from ssl import SSLContext
from time import monotonic_ns
from typing import TYPE_CHECKING

import trio

from drld.config.changes import Configuration
from drld.control.server import serve
from drld.control.tcp import serve_http
from drld.control.turns import Turns
from drld.daemon import startup
from drld.daemon.control_backend import ControlBackend
from drld.daemon.enforcer import Enforcer
from drld.daemon.event_log import EventLog
from drld.daemon.history import History
from drld.daemon.notify import Manager
from drld.daemon.origin import Origin, state_directory
from drld.daemon.reloader import Reloader
from drld.daemon.running_plane import PlaneContext, running_planes
from drld.daemon.ticker import Ticker
from drld.errors import DrldError
from drld.log_event import event
from drld.spec import HttpSpec, LimiterSpec

if TYPE_CHECKING:
    from drld.registry.agent import Agent

log = logging.getLogger("drld")

YOUNG_OBJECTS = 20_000
"""Python's collector looks for cycles when this many more objects have been made than freed. A turn
of a front and a tick make some thousand objects, and free them again. With the default, 700, each
of them starts the collector. It often goes through the objects of all limits and topics then, and
the processor's caches keep little else: under 10,000 topics that is a tenth to a fifth of a
message's cost. This many objects take some 5 MB."""


class Daemon:
    """One running limiter."""

    def __init__(self, path: Path, configuration: Configuration) -> None:
        """Claim the limiter's name and open the gossip socket.

        Raises:
            ConfigError: a daemon of this name runs already, or the announced address cannot be
                bound.
        """
        spec = configuration.in_force
        self._claim = startup.claim_name(path, spec.name)
        transport = startup.open_transport(path, spec)
        self._stopping = trio.Event()
        self._turns = Turns()
        self._manager = Manager()
        context = PlaneContext(
            path,
            clock=monotonic_ns,
            files=self._files,
            ring=lambda: transport.ring,
            stopping=self._stopping,
            turns=self._turns,
            manager=self._manager,
        )
        self._events = EventLog()
        state = state_directory()
        self._history = History(state / f"{spec.name}.history.jsonl" if state else None)
        self._enforcer = Enforcer(spec, transport, running_planes(context, spec), self._history)
        self._registry = self._agent(path, spec)
        self._reloader = Reloader(
            path,
            configuration,
            self._enforcer,
            self._registry,
            history=self._history,
            events=self._events,
            manager=self._manager,
        )
        self._ticker = Ticker(self._enforcer, self._events, self._manager)
        self._backend = ControlBackend(
            self._enforcer,
            self._reloader,
            self._ticker,
            self._registry,
            self._history,
            self._events,
            self._manager,
        )

    @property
    def ready(self) -> bool:
        """Whether the limits have been in force."""
        return self._manager.ready

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT.

        Raises:
            DrldError: the datapath or the control socket cannot be set up; nothing is left behind.
        """
        with (
            trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as stops,
            trio.open_signal_receiver(signal.SIGHUP) as hangups,
        ):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # see drld.daemon.main
            try:
                async with trio.open_nursery() as nursery:
                    await self._serve_control(nursery)
                    async with trio.open_nursery() as servers:
                        nursery.start_soon(self._work, nursery, servers)
                        nursery.start_soon(self._reload_on_signals, hangups)
                        async for _ in stops:
                            break
                        self._manager.tell_stopping()
                        log.info("stopping", extra=event("daemon.stopping"))
                        # Ticks go on until each server has answered what is open.
                        self._stopping.set()
                    nursery.cancel_scope.cancel()
            finally:
                await self._end()

    async def _serve_control(self, nursery: trio.Nursery) -> None:
        """Serve the control API. If this fails, the rules of a daemon that died stay in force."""
        spec, turns = self._files(), self._turns
        await nursery.start(serve, self._backend, spec.control, spec.control_group, turns)
        if spec.http is not None:
            show = partial(serve_http, page=spec.http.page)
            await nursery.start(show, self._backend, spec.http.listen, self._tls, turns)

    async def _work(self, nursery: trio.Nursery, servers: trio.Nursery) -> None:
        """Enforce the limits as soon as the fleet is known, and start the tasks for them."""
        own = self._files().limits
        if self._registry is None:
            self._enforcer.start(self._files(), own)
        else:
            nursery.start_soon(self._registry.run)
            await self._registry.known.wait()
            self._enforcer.start(self._registry.spec(), own)
            self._registry.started(self._enforcer.engine.spec)
        nursery.start_soon(self._history.keep)
        nursery.start_soon(self._ticker.run)
        for plane in self._enforcer.planes:
            nursery.start_soon(plane.run)
        for plane in self._enforcer.planes:
            if self._stopping.is_set():
                return  # `servers` may have ended.
            if plane.has_clients:
                await servers.start(plane.serve)
            else:
                servers.start_soon(plane.serve_later)
        # Imported modules live as long as the daemon. The collector need never look at them.
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS)
        await self._tell_ready()

    async def _tell_ready(self) -> None:
        # From here on the rules outlive a failure, so nothing may wait before this line.
        self._manager.ready = True
        limits = len(self._enforcer.engine.limits)
        datapath = self._backend.status()["datapath"]
        self._history.started(limits, time.time())
        await self._history.write()
        self._manager.tell_ready()
        # The reason for nfqueue has the words of other tools; the status keeps them.
        short = datapath["name"] == "nfqueue"
        ready = f"ready: limits: {limits}, {'nfqueue' if short else datapath['reason']}"
        fields = event("daemon.ready", limits=limits, datapath=datapath["name"])
        log.info("%s", ready, extra=fields)
        self._events.add("daemon", ready)
        self._enforcer.log_remarks()

    async def _reload_on_signals(self, hangups: AsyncIterator[int]) -> None:
        async for _ in hangups:
            try:
                await self._reloader.reload(Origin("signal"))
            except DrldError:
                reason = self._reloader.report()["reload_error"]
                log.error(
                    "reload refused, the running configuration stays:\n%s",
                    reason,
                    extra=event("config.refused", reason=reason),
                )

    async def _end(self) -> None:
        """Leave the fleet, and remove the rules, unless a failure ends a daemon that was ready.

        The rules that such a daemon leaves say what happens to its packets (`on_failure`), as if it
        were killed.
        """
        stopping = self._stopping.is_set()
        if stopping or not self.ready:
            self._enforcer.engine.stop()
        self._history.flush()
        if stopping and self._registry is not None:
            with trio.CancelScope(shield=True):
                await self._registry.leave()

    def _agent(self, path: Path, spec: LimiterSpec) -> Agent | None:
        """The client of the registry, if the configuration names one."""
        if spec.registry is None:
            return None
        # Only daemons with a registry pay for its client's memory.
        from drld.registry.agent import Agent

        return Agent(spec, str(path), self._enforcer.prepare, self._follow_fleet)

    def _follow_fleet(self, spec: LimiterSpec) -> None:
        """Put into force what the registry says.

        Raises:
            ConfigError, DatapathError: it cannot be; the running configuration stays.
        """
        assert self._registry is not None
        origin = Origin("registry", revision=self._registry.revision)
        self._enforcer.take_over(spec, origin=origin, reattach=False)

    def _files(self) -> LimiterSpec:
        """The configuration of the files in force, with unsaved changes."""
        return self._reloader.configuration.in_force

    def _tls(self) -> SSLContext | None:
        """The certificate of `[http]`, as its files were when they were read last."""
        http: HttpSpec | None = self._files().http
        return http.tls.context if http and http.tls else None
