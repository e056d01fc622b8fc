"""The task that ticks the engine. It also publishes traces, and logs changes of peers."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from functools import partial
from time import monotonic_ns

import trio

from drld.control.schema.status import TicksReport
from drld.control.trace import TraceHub
from drld.daemon import log_output
from drld.daemon.enforcer import Enforcer
from drld.daemon.event_log import EventLog
from drld.daemon.limit_report import trace_record
from drld.daemon.notify import Manager
from drld.daemon.peer_log import Notice, PeerLog
from drld.model import NS_PER_S

log = logging.getLogger("drld")


class Ticker:
    """Ticks an engine whenever a limit or a round is due."""

    def __init__(self, enforcer: Enforcer, events: EventLog, manager: Manager) -> None:
        self.counts = TicksReport(run=0, late=0)
        self.traces = TraceHub()
        self._enforcer = enforcer
        self._events = events
        self._manager = manager
        self._peer_log = PeerLog(enforcer.transport.rejected)

    async def run(self) -> None:
        """Tick until cancelled; a change of the configuration may change when the next is due."""
        try:
            while True:
                self._manager.alive(monotonic_ns())
                due_ns = self._enforcer.engine.next_due_ns()
                changed = self._enforcer.changed
                delay_s = max(due_ns - monotonic_ns(), 0) / NS_PER_S
                with trio.move_on_after(delay_s):
                    await changed.wait()
                if changed.is_set():
                    self.traces.retain(self._enforcer.limit_names())
                else:
                    self._tick(due_ns)
        finally:
            self._tell(self._peer_log.rest())

    def _tick(self, due_ns: int) -> None:
        engine, now_ns = self._enforcer.engine, monotonic_ns()
        self.counts["run"] += 1
        self.counts["late"] += now_ns - due_ns > engine.spec.gossip.interval_ns // 2
        ticks = engine.tick(now_ns, self.traces.limits())
        self._tell(self._peer_log.lines(engine, monotonic_ns()))
        log_output.sum_up()
        for name, tick in ticks:
            self.traces.publish(name, partial(trace_record, name, tick, time.time()))

    def _tell(self, notices: Iterable[Notice]) -> None:
        for notice in notices:
            log.warning("%s", notice.text, extra=notice.event)
            self._events.add("peer", notice.text)
