"""The daemon: a trio nursery around the engine, and the only reader of the clock.

Tasks: the ticker, the packet queue, the control API and the signals. SIGTERM and SIGINT stop it
(rules are removed first, then what is still queued is decided, then the rest goes); SIGHUP reloads
the configuration, and a bad file changes nothing but `reload_error`.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from typing import TYPE_CHECKING, TypeVar

import trio

import drld
from drld import config
from drld.capture.kernel.datapath import KernelDatapath, limiter_programs
from drld.capture.nfqueue.datapath import NfqueueDatapath
from drld.capture.nfqueue.firewall import remove_rules
from drld.capture.plane import packets
from drld.capture.spec import Match, PacketsSpec
from drld.config.atomic_file import replace_by
from drld.config.changes import Change, Configuration
from drld.control.credentials import Credentials
from drld.control.ranking import Rank
from drld.control.schema import (
    ChangeReport,
    ConfigTable,
    Event,
    HistoryEntry,
    KeysReport,
    LimitReport,
    LiveLimit,
    PeerHealth,
    PeerReport,
    SortKey,
    StatusReport,
    SuggestionReport,
    TicksReport,
    TraceLine,
)
from drld.control.server import serve
from drld.control.tcp import serve_http
from drld.control.trace import TraceHub
from drld.control.turns import Turns
from drld.daemon import live, log_output, report, startup
from drld.daemon.event_log import EventLog
from drld.daemon.history import History
from drld.daemon.notify import Manager
from drld.daemon.origin import Origin, origin_of, state_directory
from drld.daemon.peer_log import PeerLog
from drld.daemon.single_flight import SingleFlight
from drld.engine import Engine
from drld.errors import ConfigError, DatapathError, DrldError, printable
from drld.explanation import Explanation
from drld.fleet_rates import FleetRates
from drld.gossip.wire.counts_codec import Counts
from drld.gossip.wire.keyring import KeyRing
from drld.log_event import event
from drld.messages.plane import messages
from drld.messages.spec import MessagesSpec
from drld.model import NS_PER_S
from drld.plane import Plane
from drld.police.no_datapath import NoDatapath
from drld.reload import differences, tables
from drld.requests.datapath import RequestDatapath
from drld.requests.keyed_limit import Terms
from drld.requests.keyed_limits import KeyedLimits
from drld.requests.keys import fleet_secret
from drld.requests.plane import requests
from drld.requests.spec import RequestsSpec
from drld.shared_settings import shared_settings
from drld.spec import LimiterSpec, PlaneSpec

if TYPE_CHECKING:
    from ssl import SSLContext

    from drld.messages.datapath import MessageDatapath
    from drld.registry.agent import Agent
    from drld.requests.front.deltas import Deltas

if sys.version_info < (3, 11):
    from exceptiongroup import BaseExceptionGroup

log = logging.getLogger("drld")

clock = time.monotonic_ns

T = TypeVar("T")
P = TypeVar("P", bound=PlaneSpec)

MAX_REPORTED = 20_000
"""Characters of a refusal that the status shows: a large file may have thousands of mistakes."""


class Daemon:
    """One running limiter; also the backend of the control API."""

    def __init__(self, path: Path, configuration: Configuration) -> None:
        """Open the gossip socket.

        Raises:
            ConfigError: a daemon of this name runs already, or the announced address cannot be
                bound.
        """
        self.path = path
        self._configuration = configuration
        spec = configuration.in_force
        self._claim = startup.claim_name(path, spec.name)
        self.datapath: KernelDatapath | NfqueueDatapath | NoDatapath = (
            startup.nfqueue(spec, clock)
            if spec.plane(PacketsSpec).datapath == "nfqueue"
            else KernelDatapath(spec.name)
        )
        self._packets = packets(self.datapath)
        self._reason = ""
        self._requests: RequestDatapath | None = None
        """None: this daemon answers no requests."""
        self._deltas: Deltas | None = None
        """What its limits with a bucket for each key tell the peers."""
        if spec.plane(RequestsSpec).listen:
            self._requests, self._deltas = self._request_plane(path, spec)
        self._messages: MessageDatapath | None = None
        """None: this daemon is in front of no broker."""
        if brokers := spec.plane(MessagesSpec).brokers:
            # Those who have none do without its memory.
            from drld.messages.datapath import MessageDatapath

            self._messages = MessageDatapath(brokers, Random(SystemRandom().getrandbits(64)))
        self._stopping = trio.Event()
        self._transport = startup.open_transport(path, spec)
        self._rates = FleetRates(self._counted)
        self.engine = self._engine(spec)
        self._registry: Agent | None = None
        if spec.registry is not None:
            # Only those who have a registry pay for its client's memory.
            from drld.registry.agent import Agent

            self._registry = Agent(spec, str(path), self._load_programs, self._follow_fleet)
        self._manager = Manager()
        self._started_ns = clock()
        self._loaded_at = time.time()
        self._reload_error: str | None = None
        self._dropped: list[str] = []
        """Limits whose unsaved changes the last reload has reverted."""
        self._ticks = TicksReport(run=0, late=0)
        self.ready = False
        self._changed = trio.Event()
        self._traces = TraceHub()
        self._peer_log = PeerLog()
        self._events = EventLog()
        state = state_directory()
        self._history = History(state / f"{spec.name}.history.jsonl" if state else None)
        self._askers: list[Origin] = []
        """Those who wait for a reload, in the order of asking; the first is why it runs."""
        self._remarks: list[str] = []
        """On the configuration in force."""
        self._nursery: trio.Nursery | None = None
        """Of the tasks that run until the daemon is stopped."""
        self._drained: NfqueueDatapath | None = None
        """Whose queue a task reads."""
        self._one_reload = SingleFlight(self._reload)

    @staticmethod
    def _request_plane(path: Path, spec: LimiterSpec) -> tuple[RequestDatapath, Deltas]:
        """What answers requests, and what tells the peers of those with keys."""
        # Those who do not answer requests do without its memory.
        from drld.requests.front.deltas import Deltas

        rng = Random(SystemRandom().getrandbits(64))
        terms = Terms(
            origin=rng.getrandbits(32),
            secret=fleet_secret(spec.ring),
            interval_ns=spec.gossip.interval_ns,
            members=len(spec.members),
            wall_ns=time.time_ns() - clock(),
        )
        keyed = KeyedLimits(terms, rng)
        secret = SystemRandom().randbytes(32)
        return RequestDatapath(rng, secret, keyed=keyed), Deltas(path, keyed, clock)

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
            stopping = False
            try:
                async with trio.open_nursery() as nursery:
                    spec = self.engine.spec
                    # Before packets: what fails here leaves what a dead daemon left in force.
                    turns = Turns()
                    await nursery.start(serve, self, spec.control, spec.control_group, turns)
                    if spec.http is not None:
                        show = partial(serve_http, page=spec.http.page)
                        await nursery.start(show, self, spec.http.listen, self._tls, turns)
                    async with trio.open_nursery() as fronts:
                        nursery.start_soon(self._work, nursery, fronts, turns)
                        nursery.start_soon(self._reload_on_signals, hangups)
                        async for _ in stops:
                            break
                        stopping = True
                        self._manager.tell("STOPPING=1")
                        log.info("stopping", extra=event("daemon.stopping"))
                        # Ticks go on until each front has answered what is open.
                        self._stopping.set()
                    nursery.cancel_scope.cancel()
            finally:
                # A daemon that fails in the middle leaves its rules, as one that is killed does:
                # they, and not the lack of them, say what happens to its packets (`on_failure`).
                if stopping or not self.ready:
                    self.engine.stop()
                self._history.flush()
                if stopping and self._registry is not None:
                    with trio.CancelScope(shield=True):
                        await self._registry.leave()

    def _tls(self) -> SSLContext | None:
        """What the certificate's files were when the configuration in force was read."""
        http = self._configuration.in_force.http
        return http.tls.context if http and http.tls else None

    def _requests_tls(self) -> SSLContext | None:
        """As `_tls`, of [requests]."""
        tls = self.plane_spec(RequestsSpec).tls
        return tls.context if tls else None

    def _broker_tls(self, name: str) -> SSLContext | None:
        """As `_tls`, of a broker."""
        tls = next(it.tls for it in self.plane_spec(MessagesSpec).brokers if it.name == name)
        return tls.context if tls else None

    async def _work(self, nursery: trio.Nursery, fronts: trio.Nursery, turns: Turns) -> None:
        """Start what runs until the daemon is stopped, once it is known who the fleet is."""
        self._nursery = nursery
        if self._registry is None:
            self._start()
        else:
            nursery.start_soon(self._registry.run)
            await self._registry.known.wait()
            self._prepare(self._registry.spec())
            self._start()
            self._registry.started(self.engine.spec)
        nursery.start_soon(self._history.keep)
        nursery.start_soon(self._tick)
        self._drain()
        if self._deltas is not None:
            nursery.start_soon(self._deltas.run)
        if self._requests is not None and not self._stopping.is_set():
            # Those who do not answer requests do without its memory.
            from drld.requests.front.server import serve_requests

            listen = self.engine.spec.plane(RequestsSpec).listen
            answer = partial(
                serve_requests,
                clock=clock,
                stopping=self._stopping,
                trusted=lambda: self.plane_spec(RequestsSpec).trusted_proxies,
                tls=self._requests_tls,
            )
            await fronts.start(answer, self._requests, listen, turns)
        if self._messages is not None and not self._stopping.is_set():
            from drld.messages.front.server import serve_brokers

            serve_them = partial(
                serve_brokers,
                clock=clock,
                stopping=self._stopping,
                tls=self._broker_tls,
                keeper=self._manager,
            )
            await fronts.start(
                serve_them, self._messages, self.engine.spec.plane(MessagesSpec).brokers
            )
        # What was imported lives as long as the daemon: the collector need not look at it ever
        # again.
        gc.freeze()
        self.ready = True
        self._history.started(len(self.engine.limits), time.time())
        await self._history.write()
        self._manager.tell("READY=1")
        limits = len(self.engine.limits)
        ready = f"ready: limits: {limits}, {self._why()}"
        fields = event("daemon.ready", limits=limits, datapath=self.datapath.name)
        log.info("%s", ready, extra=fields)
        self._events.add("daemon", ready)
        self._remark()

    def _engine(self, spec: LimiterSpec) -> Engine:
        rng = Random(SystemRandom().getrandbits(64))
        return Engine(spec, self._planes(), self._transport, rng)

    def _planes(self) -> list[Plane]:
        own = [] if self._requests is None else [requests(self._requests)]
        own += [] if self._messages is None else [messages(self._messages)]
        return [self._packets, *own, self._rates]

    def _use(self, datapath: KernelDatapath | NfqueueDatapath | NoDatapath) -> None:
        """Police packets on this datapath from the next attaching on."""
        self.datapath = self._packets.datapath = datapath

    def _prepare(self, spec: LimiterSpec) -> None:
        """Begin with another configuration than that of the file alone."""
        self._transport.update_peers({peer.name: peer.address for peer in spec.peers})
        self.engine = self._engine(spec)

    def _begin(self, spec: LimiterSpec) -> None:
        """Begin with all limits of a configuration that the host does not refuse, as `_attach`."""
        self._prepare(spec)
        self._attach()

    def _attach(self) -> None:
        """Attach the datapath, without those of the fleet's limits that the host refuses.

        If it does not say which those are, without all of them: they are tried then
        (`Agent.started`).

        Raises:
            DatapathError: the host refuses; nothing is left behind.
        """
        while True:
            spec = self.engine.spec
            try:
                with self._telling(spec):
                    self.engine.start(clock())
            except DatapathError as error:
                if self._registry is None:
                    raise
                own = self._registry.file.limits
                fleets = [limit for limit in spec.limits if limit not in own]
                if not fleets:
                    raise
                named = {limit.id for limit in fleets if limit.id in error.limits}
                refused = named or {limit.id for limit in fleets}
                usable = tuple(limit for limit in spec.limits if limit.id not in refused)
                self._prepare(replace(spec, limits=usable))
            else:
                return

    def _start(self) -> None:
        """Attach a datapath. A daemon without limits goes on without one if the host has none.

        Raises:
            DatapathError: the host refuses; nothing is left behind.
        """
        spec = self.engine.spec
        polices_packets = any(isinstance(limit.match, Match) for limit in spec.limits)
        automatic = spec.plane(PacketsSpec).datapath == "auto"
        others = [
            f"{name} needs no datapath"
            for name, datapath in (("[requests]", self._requests), ("[[broker]]", self._messages))
            if datapath is not None
        ]
        if others and automatic and not polices_packets:
            self._go_without(f"it has no limits on packets, and {others[0]}")
            return
        try:
            self._choose(spec, partial(self._begin, spec))
        except DatapathError as error:
            # Limits of a registry may come at any time.
            if spec.limits or spec.registry is not None:
                raise
            none = event("datapath.none", reason=str(error))
            log.warning("no limits, and no datapath: %s", error, extra=none)
            self._go_without(str(error))

    @contextmanager
    def _telling(self, spec: LimiterSpec) -> Iterator[None]:
        """Have limits with a bucket for each key tell the peers of another configuration.

        Raises:
            ConfigError: they cannot; the running configuration stays.
        """
        if self._deltas is None:
            yield
            return
        undo = self._deltas.prepare(spec, self._transport.ring)
        try:
            yield
        except BaseException:
            undo()
            raise
        self._deltas.adopt(spec, self._transport.ring)

    def _go_without(self, reason: str) -> None:
        """Start without a datapath for packets."""
        self._use(NoDatapath(reason))
        self._begin(self.engine.spec)

    def _choose(self, spec: LimiterSpec, put: Callable[[], None]) -> None:
        """Put a configuration on the datapath; of `auto`, on nfqueue where the kernel's refuses it.

        Raises:
            DatapathError: the host refuses; nothing is left behind.
        """
        try:
            put()
        except DatapathError as error:
            if spec.plane(PacketsSpec).datapath != "auto":
                raise
            self._use(startup.nfqueue(spec, clock))
            try:
                put()
            except DatapathError as other:
                reason = f"{other}; no kernel datapath: {error}"
                raise DatapathError(reason, other.limits) from error
            fallback = event("datapath.fallback", old="kernel", new="nfqueue", reason=str(error))
            log.warning("no kernel datapath, nfqueue instead: %s", error, extra=fallback)
            self._reason = f"; no kernel datapath: {error}"
        self._clean(spec)

    def _clean(self, spec: LimiterSpec) -> None:
        """Remove the rules of one on nfqueue that was killed: they would lead packets to nobody."""
        if isinstance(self.datapath, KernelDatapath) and spec.plane(PacketsSpec).firewall != "none":
            remove_rules(spec.name)

    def _begin_packets(self, spec: LimiterSpec) -> None:
        """Put a configuration into force that has the first limits on packets of this daemon.

        Raises:
            ConfigError, DatapathError: it cannot be; the daemon stays without a datapath.
        """
        without, nfqueue = self.datapath, spec.plane(PacketsSpec).datapath == "nfqueue"

        def put() -> None:
            try:
                self.engine.reconfigure(spec, clock())
            except DrldError:
                self.datapath.detach()
                raise

        try:
            self._use(startup.nfqueue(spec, clock) if nfqueue else KernelDatapath(spec.name))
            self._choose(spec, put)
        except DrldError:
            self._use(without)
            raise
        self._drain()
        chosen = event("datapath.chosen", datapath=self.datapath.name, reason=self._why())
        log.info("a datapath for the first limits on packets: %s", self._why(), extra=chosen)

    def _why(self) -> str:
        """Which datapath it is, and why this one."""
        return self.datapath.reason + self._reason

    async def _tick(self) -> None:
        while True:
            self._manager.alive(clock())
            due_ns = self.engine.next_due_ns()
            changed = self._changed
            delay_s = max(due_ns - clock(), 0) / NS_PER_S
            with trio.move_on_after(delay_s):
                await changed.wait()
            if changed.is_set():
                continue
            now_ns = clock()
            self._ticks["run"] += 1
            self._ticks["late"] += now_ns - due_ns > self.engine.spec.gossip.interval_ns // 2
            ticks = self.engine.tick(now_ns, self._traces.limits())
            for notice in self._peer_log.lines(self.engine, clock()):
                log.warning("%s", notice.text, extra=notice.event)
                self._events.add("peer", notice.text)
            log_output.sum_up()
            for name, tick in ticks:
                self._traces.publish(name, partial(report.trace_record, name, tick, time.time()))

    def _drain(self) -> None:
        """Have a task read the queue of packets, if there is one and none reads it."""
        if isinstance(self.datapath, NfqueueDatapath) and self._drained is not self.datapath:
            assert self._nursery is not None
            self._drained = self.datapath
            self._nursery.start_soon(self._drain_queue, self.datapath)

    @staticmethod
    async def _drain_queue(datapath: NfqueueDatapath) -> None:
        while True:
            await trio.lowlevel.wait_readable(datapath.fileno())
            datapath.drain()

    async def _reload_on_signals(self, hangups: AsyncIterator[int]) -> None:
        async for _ in hangups:
            try:
                await self._reload_for(Origin("signal"))
            except DrldError:
                log.error(
                    "reload refused, the running configuration stays:\n%s",
                    self._reload_error,
                    extra=event("config.refused", reason=self._reload_error),
                )

    # The backend of the control API.

    async def reload(self, by: Credentials) -> None:
        """Read the configuration files again and take them over; many may ask at a time.

        Unsaved changes are reverted, as by `nft -f` or a reload of firewalld or HAProxy: after a
        reload, the files are in force.

        Raises:
            ConfigError: a file is bad; the running configuration stays.
            DatapathError: the host refuses it; the running configuration stays.
        """
        await self._reload_for(await trio.to_thread.run_sync(origin_of, "reload", by))

    async def _reload_for(self, origin: Origin) -> None:
        self._askers.append(origin)
        try:
            await self._one_reload()
        finally:
            self._askers.remove(origin)

    async def _reload(self) -> None:
        if self.ready:
            self._manager.tell(f"RELOADING=1\nMONOTONIC_USEC={clock() // 1000}")
        try:
            # A large file takes seconds to read: ticks go on meanwhile.
            first = self._askers[0]
            read = partial(_configuration, self.path)
            configuration = await trio.to_thread.run_sync(read, abandon_on_cancel=True)
            await self._put_in_force(configuration.in_force, first)
            await self._history.write()
        except DrldError as error:
            self._reload_error = str(error)[:MAX_REPORTED]
            self._events.add("fault", f"reload refused: {self._reload_error}")
            raise
        finally:
            if self.ready:
                self._manager.tell("READY=1")
        self._dropped = self._configuration.unsaved_names()
        self._configuration = configuration
        self._reload_error = None
        self._loaded_at = time.time()
        limits = len(self.engine.limits)
        reloaded = f"reloaded {self.path}: limits: {limits}"
        fields = event("config.reloaded", file=str(self.path), limits=limits)
        log.info("%s", reloaded, extra=fields)
        self._events.add("reload", reloaded)
        if self._dropped:
            log.warning(
                "unsaved changes are dropped by the reload: %s",
                ", ".join(self._dropped),
                extra=event("limit.reverted", limits=self._dropped),
            )

    async def _put_in_force(self, spec: LimiterSpec, origin: Origin) -> None:
        """Take over a configuration of files and unsaved changes.

        Raises:
            ConfigError, DatapathError: it cannot be; the running one stays.
        """
        take_over = partial(self._take_over, origin=origin)
        if self._registry is not None:
            await self._registry.reload(spec, take_over)
        elif spec.registry is not None:
            # Without its peers, and with nobody to name others, it would have all of the limit.
            raise ConfigError(
                [f"{self.path}: registry: cannot change while the daemon runs: restart it"]
            )
        else:
            await self._load_programs(spec)
            take_over(spec)

    async def change_limits(self, change: Change, by: Credentials) -> ChangeReport:
        """Put a change of limits into force, on top of all changes before it.

        Raises:
            KeyError: there is no such limit.
            ConfigError: the change is bad, or cannot be saved; nothing is changed.
            DatapathError: the host refuses it; nothing is changed.
        """
        named = partial(origin_of, "control", by, saved=change.save)
        origin = await trio.to_thread.run_sync(named)
        async with self._one_reload.alone():
            before = self._configuration
            if change.limit in self._names() - {it.name for it in before.in_force.limits}:
                raise ConfigError([f"{change.limit}: is a limit of the fleet's registry (--fleet)"])
            after = await trio.to_thread.run_sync(before.changed, change)
            beside = None
            if change.save:
                beside = await trio.to_thread.run_sync(after.write, before)
            try:
                await self._put_in_force(after.in_force, origin)
                self._configuration = after
                if beside is not None:
                    self._save(beside, change, before)
                # Before anything waits: a client that leaves now does not keep it from the log.
                return self._changed_limits(before, after, change.save)
            finally:
                if beside is not None:
                    beside.unlink(missing_ok=True)
                await self._history.write()

    def _save(self, beside: Path, change: Change, before: Configuration) -> None:
        """Put the drop-in into place.

        Raises:
            ConfigError: it cannot be; the change is in force, and not saved.
        """
        drop_in = self._configuration.drop_in
        try:
            replace_by(drop_in, beside)
        except OSError as error:
            self._configuration = before.changed(replace(change, save=False))
            self._changed_limits(before, self._configuration, False)
            reason = f"the change is in force, but not saved: {error.strerror}"
            raise ConfigError([f"{drop_in}: {reason}"]) from error

    def _changed_limits(
        self, before: Configuration, after: Configuration, saved: bool
    ) -> ChangeReport:
        """Log and report what has changed."""
        found = differences(tables(before.document()), tables(after.document()))
        lasts = "saved" if saved else "until a restart or a reload"
        for it in found:
            keys = ", ".join(
                f"{key}: {new!r}" if it.change == "added" else f"{key}: {old!r} -> {new!r}"
                for key, (old, new) in it.keys.items()
                if it.change != "removed"
            )
            line = f"{it.table} {it.change} ({lasts}){': ' if keys else ''}{keys}"
            log.info(
                "%s",
                line,
                extra=event(
                    "limit.changed",
                    it.table,
                    **{"limit": it.table.removeprefix("limit "), "change": it.change},
                    **{"old": {key: old for key, (old, _) in it.keys.items()}},
                    **{"new": {key: new for key, (_, new) in it.keys.items()}, "saved": saved},
                ),
            )
            self._events.add("change", line)
        agreed = [
            shared_settings((limit.policy for limit in each.in_force.limits), each.in_force.gossip)
            for each in (before, after)
        ]
        peers = self.engine.spec.peers if agreed[0] != agreed[1] else ()
        return report.change_report(
            found, str(after.drop_in.absolute()) if saved else None, [peer.name for peer in peers]
        )

    async def _load_programs(self, spec: LimiterSpec) -> None:
        """Do what takes long of `_take_over` while ticks go on; one at a time."""
        of_packets = [limit for limit in spec.limits if isinstance(limit.match, Match)]
        if isinstance(self.datapath, KernelDatapath):
            await trio.to_thread.run_sync(self.datapath.preparation(of_packets))
        elif isinstance(self.datapath, NoDatapath) and of_packets:
            # Into the cache; `_begin_packets` says why, if they cannot be compiled.
            with suppress(DatapathError):
                await trio.to_thread.run_sync(limiter_programs)

    def _follow_fleet(self, spec: LimiterSpec) -> None:
        """Put what the registry says into force.

        Raises:
            ConfigError, DatapathError: it cannot be; the running one stays.
        """
        assert self._registry is not None
        origin = Origin("registry", revision=self._registry.revision)
        self._take_over(spec, reattach=False, origin=origin)

    def _take_over(self, spec: LimiterSpec, *, origin: Origin, reattach: bool = True) -> None:
        """Put another configuration into force.

        Raises:
            ConfigError, DatapathError: it cannot be; the running one stays.
        """
        before = self.engine.spec.limits
        polices_packets = any(isinstance(limit.match, Match) for limit in spec.limits)
        with self._telling(spec):
            if isinstance(self.datapath, NoDatapath) and polices_packets:
                self._begin_packets(spec)
            else:
                self.engine.reconfigure(spec, clock(), reattach=reattach)
        self._history.note(before, spec.limits, origin, time.time())
        self._traces.retain(self._names())
        self._changed.set()
        self._changed = trio.Event()
        self._remark()

    def _remark(self) -> None:
        """Log what the configuration in force is better without, once."""
        before, self._remarks = self._remarks, config.remarks(self.engine.spec)
        for line in self._remarks:
            if line not in before:
                key = line.partition(":")[0]
                log.warning("%s", line, extra=event("config.remark", key, key=key))

    def status(self) -> StatusReport:
        """The daemon as a whole."""
        now_ns = clock()
        engine = self.engine
        spec = engine.spec
        http = self._configuration.in_force.http
        deltas = self._deltas and self._deltas.transport
        return StatusReport(
            name=spec.name,
            version=drld.__version__,
            pid=os.getpid(),
            uptime_s=(now_ns - self._started_ns) / NS_PER_S,
            ticks=TicksReport(**self._ticks),
            ready=self.ready,
            datapath={
                "name": self.datapath.name,
                "reason": self._why(),
                "firewall": self.datapath.firewall,
                "queue": self.datapath.queue,
                "counters": {
                    name: count
                    for plane in self._planes()
                    for name, count in plane.datapath.counters().items()
                },
            },
            fabric={
                "name": spec.gossip.fabric,
                "branching": spec.gossip.branching,
                "interval_s": spec.gossip.interval_ns / NS_PER_S,
            },
            peers={
                "configured": len(spec.peers),
                "connected": len(engine.membership.connected(now_ns)) + engine.membership.unnamed,
            },
            probes=report.probes_report(engine, now_ns),
            limits=len(engine.limits),
            gossip=report.gossip_report(self._transport),
            deltas=report.gossip_report(deltas) if deltas else None,
            config={
                "file": str(self.path.absolute()),
                "loaded_at": self._loaded_at,
                "reload_error": self._reload_error,
                "unsaved": self._configuration.unsaved_names(),
                "dropped": self._dropped,
                "certificate_expires_at": http.tls.expires if http and http.tls else None,
            },
            registry=None if self._registry is None else self._registry.report(),
        )

    def limits(self, ids: Sequence[int] | None = None) -> Iterator[LimitReport]:
        """The limits of these ids that exist, in this order; by default all, as configured."""
        unsaved = self._configuration.unsaved_keys()
        return report.limit_reports(self.engine, clock(), unsaved, ids)

    def limit(self, name: str) -> LimitReport:
        """One limit.

        Raises:
            KeyError: there is no such limit.
        """
        (limit_report,) = self.limits([self.engine.limit_id(name)])
        return limit_report

    def ranks(self, by: SortKey) -> Iterator[Rank]:
        """What each limit is sorted by, in the order of the configuration."""
        return report.ranks(self.engine, by)

    def explainer(self, *, misses: bool) -> Callable[[str], Iterator[Explanation]]:
        """What says what each limit would do with an item now."""
        return report.explainer(self.engine, clock, misses=misses)

    def datapath_of(self, kind: type[T]) -> T | None:
        """The running datapath of this type; None: there is none."""
        found = (plane.datapath for plane in self._planes())
        return next((datapath for datapath in found if isinstance(datapath, kind)), None)

    def plane_spec(self, kind: type[P]) -> P:
        """What the files in force ask of a plane."""
        return self._configuration.in_force.plane(kind)

    def suggest(self, limit: str, part: float) -> SuggestionReport | None:
        """A rate that this part of a limit's seconds did not exceed, and a burst.

        Raises:
            KeyError: there is no such limit.
        """
        for managed in self.engine.limits.values():
            if managed.limiter.policy.name == limit:
                return report.suggestion(managed, part)
        raise KeyError(limit)

    def config(self) -> Iterator[ConfigTable]:
        """The tables of the configuration in force."""
        document = self._configuration.document()
        return (ConfigTable(kind=kind, values=dict(table)) for kind, table in tables(document))

    def peers(self) -> Iterator[PeerReport]:
        """Every peer, in the order of the configuration."""
        return report.peer_reports(self.engine, clock())

    def live_limits(self, ids: Collection[int]) -> list[LiveLimit]:
        """The limits of these ids that exist, as the page shows them, as configured."""
        unsaved = self._configuration.unsaved_keys()
        return live.live_limits(self.engine, self._rates, clock(), unsaved, ids)

    def _counted(self, limit_id: int, now_ns: int) -> Counts | None:
        """Totals of a limit, of the engine that runs."""
        return self.engine.counted(limit_id, now_ns)

    def look(self, limit_id: int) -> None:
        """A page shows this limit: have the other limiters asked for what they forward."""
        live.look(self.engine, self._rates, limit_id, clock())

    def health(self) -> list[PeerHealth]:
        """The first hundred peers: those that are not well come first."""
        return live.health(self.engine, clock())

    def events(self, after: int) -> Iterator[Event]:
        """The last hundred events; of these, those after a number."""
        return self._events.after(after)

    def history(self) -> Iterator[HistoryEntry]:
        """The last changes of limits, the newest first."""
        return self._history.entries()

    def keys(self) -> KeysReport:
        """The keys in force."""
        return report.keys_report(self._transport.ring, self.engine.spec.ring)

    def change_keys(self, change: Callable[[KeyRing], KeyRing]) -> None:
        """Put the keys in force that `change` makes of those that are.

        Raises:
            ConfigError: raised by `change`; nothing is changed.
        """
        transport = self._transport
        transport.set_ring(change(transport.ring))
        if self._deltas is not None:
            self._deltas.adopt(self.engine.spec, transport.ring)
        ids, use = sorted(transport.ring.keys), transport.ring.use
        log.info("keys: %s, in use: %d", ids, use, extra=event("keys.changed", ids=ids, use=use))

    def trace(
        self, limit: str
    ) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[TraceLine]]:
        """A record a tick of one limit, until the context is left.

        Raises:
            KeyError: there is no such limit.
        """
        if limit not in self._names():
            raise KeyError(limit)
        return self._traces.subscribe(limit)

    def _names(self) -> set[str]:
        return {managed.limiter.policy.name for managed in self.engine.limits.values()}


def _configuration(path: Path) -> Configuration:
    return Configuration.of(config.read(path))


def main(argv: list[str] | None = None) -> int:
    """Entry point of `drld`; returns the exit status.

    0: it was told to stop. 1: it failed. 2: the configuration is bad. 3: it could not start, for
    the host refused something.
    """
    parser = argparse.ArgumentParser(
        prog="drld",
        description="A distributed rate limiter.",
        epilog="Example: drld --config /etc/drld/drld.toml --check. Exit status: 0 stopped in "
        "order, 1 failed while it ran, 2 the configuration has mistakes, 3 the host refused "
        "something at the start.",
    )
    parser.add_argument(
        "--config",
        required=True,
        type=Path,
        metavar="FILE",
        help="configuration, with its drop-ins in FILE.d (docs/configuration.md)",
    )
    parser.add_argument(
        "--check", action="store_true", help="print mistakes and remarks, or ok, and exit"
    )
    parser.add_argument(
        "--log-format",
        choices=log_output.FORMATS,
        default="auto",
        help="auto: fields of the journal if systemd leads stderr there, else text",
    )
    parser.add_argument("--version", action="version", version=f"drld {drld.__version__}")
    args = parser.parse_args(argv)
    log_output.set_up(args.log_format)
    try:
        configuration = _configuration(args.config)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    spec = configuration.in_force
    if args.check:
        file = printable(str(args.config))
        for line in config.remarks(spec):
            print(f"{file}: {printable(line)}", file=sys.stderr)
        print(f"{file}: ok (limits: {len(spec.limits)}, peers: {len(spec.peers)})")
        return 0
    daemon = None
    try:
        daemon = Daemon(args.config, configuration)
        trio.run(daemon.run)
    except Exception as raised:
        # A nursery wraps what its tasks raise, also when it is one error of one task.
        cause: BaseException = raised
        while isinstance(cause, BaseExceptionGroup) and len(cause.exceptions) == 1:
            cause = cause.exceptions[0]
        if isinstance(cause, DrldError):
            print(f"drld: {cause}", file=sys.stderr)
        else:
            traceback.print_exception(raised)
        return 1 if daemon and daemon.ready else 3
    return 0
