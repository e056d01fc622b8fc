"""The daemon as the control API sees it (`drld.control.backend.Backend`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import TYPE_CHECKING, TypeVar

import trio

import drld
from drld.config.changes import Change
from drld.control.credentials import Credentials
from drld.control.ranking import Rank
from drld.control.schema.changes import ChangeReport, ConfigTable, HistoryEntry
from drld.control.schema.keys import KeysReport
from drld.control.schema.limits import LimitReport, SortKey, SuggestionReport, TraceLine
from drld.control.schema.live import Event, LiveLimit, PeerHealth
from drld.control.schema.peers import PeerReport
from drld.control.schema.status import (
    DatapathReport,
    FabricReport,
    PeerCounts,
    StatusReport,
    TicksReport,
)
from drld.daemon import fleet_report, limit_report, live
from drld.daemon.enforcer import Enforcer
from drld.daemon.event_log import EventLog
from drld.daemon.history import History
from drld.daemon.notify import Manager
from drld.daemon.origin import origin_of
from drld.daemon.reloader import Reloader
from drld.daemon.ticker import Ticker
from drld.engine import Engine
from drld.gossip.wire.keyring import KeyRing
from drld.model import NS_PER_S
from drld.planes.explanation import Explanation
from drld.reload import tables
from drld.spec import PlaneSpec

if TYPE_CHECKING:
    from drld.registry.agent import Agent

T = TypeVar("T")
P = TypeVar("P", bound=PlaneSpec)


@dataclass(frozen=True)
class ControlBackend:
    """Answers from the parts of a daemon; `Backend` says what each method returns."""

    enforcer: Enforcer
    reloader: Reloader
    ticker: Ticker
    registry: Agent | None
    history_kept: History
    event_log: EventLog
    manager: Manager
    started_ns: int = field(default_factory=monotonic_ns)

    @property
    def _engine(self) -> Engine:
        return self.enforcer.engine

    def status(self) -> StatusReport:
        """See `Backend.status`."""
        now_ns = monotonic_ns()
        engine, planes = self._engine, self.enforcer.planes
        spec = engine.spec
        deltas = (plane.deltas_report() for plane in planes)
        return StatusReport(
            name=spec.name,
            version=drld.__version__,
            pid=os.getpid(),
            uptime_s=(now_ns - self.started_ns) / NS_PER_S,
            ticks=TicksReport(**self.ticker.counts),
            ready=self.manager.ready,
            datapath=self._datapath(),
            fabric=FabricReport(
                name=spec.gossip.fabric,
                branching=spec.gossip.branching,
                interval_s=spec.gossip.interval_ns / NS_PER_S,
            ),
            peers=PeerCounts(
                configured=len(spec.peers),
                connected=len(engine.membership.connected(now_ns)) + engine.membership.unnamed,
            ),
            probes=fleet_report.probes_report(engine, now_ns),
            limits=len(engine.limits),
            gossip=fleet_report.gossip_report(self.enforcer.transport),
            deltas=next((it for it in deltas if it is not None), None),
            config=self.reloader.report(),
            registry=None if self.registry is None else self.registry.report(),
        )

    def _datapath(self) -> DatapathReport:
        """The report on the datapath that operators choose, with the counters of all planes."""
        planes = self.enforcer.planes
        found = next(it for plane in planes if (it := plane.datapath_report()) is not None)
        for plane in planes:
            found["counters"] |= plane.datapath.counters()
        return found

    def limits(self, ids: Sequence[int] | None = None) -> Iterator[LimitReport]:
        """See `Backend.limits`."""
        unsaved = self.reloader.configuration.unsaved_keys()
        return limit_report.limit_reports(self._engine, monotonic_ns(), unsaved, ids)

    def limit(self, name: str) -> LimitReport:
        """See `Backend.limit`."""
        (found,) = self.limits([self._engine.limit_id(name)])
        return found

    def ranks(self, by: SortKey) -> Iterator[Rank]:
        """See `Backend.ranks`."""
        return limit_report.ranks(self._engine, by)

    def peers(self) -> Iterator[PeerReport]:
        """See `Backend.peers`."""
        return fleet_report.peer_reports(self._engine, monotonic_ns())

    def explainer(self, *, misses: bool) -> Callable[[str], Iterator[Explanation]]:
        """See `Backend.explainer`."""
        return limit_report.explainer(self._engine, monotonic_ns, misses=misses)

    def datapath_of(self, kind: type[T]) -> T | None:
        """See `Backend.datapath_of`."""
        found = (plane.datapath for plane in self.enforcer.planes)
        return next((datapath for datapath in found if isinstance(datapath, kind)), None)

    def plane_spec(self, kind: type[P]) -> P:
        """See `Backend.plane_spec`."""
        return self.reloader.configuration.in_force.plane(kind)

    def suggest(self, limit: str, part: float) -> SuggestionReport | int | None:
        """See `Backend.suggest`."""
        return limit_report.suggestion(self._engine.limits[self._engine.limit_id(limit)], part)

    def trace(
        self, limit: str
    ) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[TraceLine]]:
        """See `Backend.trace`."""
        self._engine.limit_id(limit)
        return self.ticker.traces.subscribe(limit)

    def look(self, limit_id: int) -> None:
        """See `Backend.look`."""
        live.look(self._engine, self.enforcer.rates, limit_id, monotonic_ns())

    def live_limits(self, ids: Collection[int]) -> list[LiveLimit]:
        """See `Backend.live_limits`."""
        unsaved = self.reloader.configuration.unsaved_keys()
        return live.live_limits(self._engine, self.enforcer.rates, monotonic_ns(), unsaved, ids)

    def health(self) -> list[PeerHealth]:
        """See `Backend.health`."""
        return live.health(self._engine, monotonic_ns())

    def events(self, after: int) -> Iterator[Event]:
        """See `Backend.events`."""
        return self.event_log.after(after)

    def keys(self) -> KeysReport:
        """See `Backend.keys`."""
        return fleet_report.keys_report(self.enforcer.transport.ring, self._engine.spec.ring)

    def change_keys(self, change: Callable[[KeyRing], KeyRing]) -> None:
        """See `Backend.change_keys`."""
        self.enforcer.change_ring(change)

    def config(self) -> Iterator[ConfigTable]:
        """See `Backend.config`."""
        document = self.reloader.configuration.document()
        return (ConfigTable(kind=kind, values=dict(table)) for kind, table in tables(document))

    def history(self) -> Iterator[HistoryEntry]:
        """See `Backend.history`."""
        return self.history_kept.entries()

    async def change_limits(self, change: Change, by: Credentials) -> ChangeReport:
        """See `Backend.change_limits`."""
        return await self.reloader.change_limits(change, by)

    async def reload(self, by: Credentials) -> None:
        """See `Backend.reload`."""
        await self.reloader.reload(await trio.to_thread.run_sync(origin_of, "reload", by))
