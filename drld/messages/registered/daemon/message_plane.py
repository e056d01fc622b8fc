"""The messages of one daemon: its datapath, and the clients of its brokers.

A reload may add, change and remove brokers, the first one included. Until then the daemon does
without the memory of the datapath and of the fronts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any

import trio

from drld.daemon.running_plane import PlaneContext, RunningPlane
from drld.errors import DatapathError
from drld.messages.spec import BrokerSpec, MessageMatch, MessagesSpec
from drld.model import Enforcement
from drld.police.no_datapath import NoDatapath
from drld.spec import LimiterSpec, LimitSpec

if TYPE_CHECKING:
    from drld.messages.datapath import MessageDatapath
    from drld.messages.front.server import Fronts


class NoBrokers(NoDatapath):
    """The datapath of a daemon that has been in front of no broker yet."""

    def __init__(self) -> None:
        super().__init__("it has no [[broker]]")

    def attach(
        self,
        limits: Iterable[tuple[LimitSpec, Enforcement]],
        now_ns: int,  # noqa: ARG002 -- it refuses all limits
    ) -> None:
        """See `Datapath.attach`."""
        refused = {
            limit.id: f"limit {limit.name}: this daemon is in front of no broker"
            for limit, _ in limits
        }
        if refused:
            raise DatapathError("; ".join(refused.values()), refused)


class MessagePlane(RunningPlane):
    """The limits on messages of one daemon."""

    datapath: MessageDatapath | NoBrokers

    def __init__(self, context: PlaneContext, spec: LimiterSpec) -> None:
        """Listen nowhere yet."""
        brokers = spec.plane(MessagesSpec).brokers
        super().__init__(MessageMatch, _datapath(brokers) if brokers else NoBrokers())
        self.has_clients = bool(brokers)
        self._context = context
        self._fronts: Fronts | None = None
        self._serving = False
        """Whether a change of brokers has to open and close sockets."""
        self._has_fronts = trio.Event()

    def put(self, spec: LimiterSpec, attach: Callable[[], None]) -> None:
        """See `RunningPlane.put`: have the brokers of the configuration, if `attach` succeeds."""
        brokers = spec.plane(MessagesSpec).brokers
        if self._context.stopping.is_set() or not (brokers or self._fronts):
            attach()
        elif self._serving:
            self._change(brokers, attach)
        else:
            datapath = self._take_datapath()
            before, datapath.brokers = datapath.brokers, {it.name: it for it in brokers}
            try:
                attach()
            except BaseException:
                datapath.brokers = before
                raise

    async def serve(self, *, task_status: trio.TaskStatus[Any]) -> None:
        """See `RunningPlane.serve`: pass messages on to the brokers."""
        self._serving = True
        fronts = self._change(self._context.files().plane(MessagesSpec).brokers, lambda: None)
        task_status.started()
        await fronts.run(self._context.stopping)

    async def serve_later(self) -> None:
        """See `RunningPlane.serve_later`: pass messages on once a reload brings a broker."""
        self._serving = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_at_stop, nursery)
            await self._has_fronts.wait()
            nursery.cancel_scope.cancel()
        if self._fronts is not None:
            await self._fronts.run(self._context.stopping)

    async def _cancel_at_stop(self, nursery: trio.Nursery) -> None:
        await self._context.stopping.wait()
        nursery.cancel_scope.cancel()

    def _change(self, brokers: Iterable[BrokerSpec], attach: Callable[[], None]) -> Fronts:
        """Have these brokers from now on, if `attach` succeeds; return their fronts."""
        if self._fronts is None:
            from drld.messages.front.server import Fronts

            context = self._context
            self._fronts = Fronts(self._take_datapath(), context.clock, context.manager)
            self._has_fronts.set()
        change = self._fronts.prepare(brokers)
        try:
            attach()
        except BaseException:
            change.undo()
            raise
        change.commit()
        return self._fronts

    def _take_datapath(self) -> MessageDatapath:
        """The datapath of messages; it is made when the first broker comes."""
        if isinstance(self.datapath, NoBrokers):
            self.datapath = _datapath(())
        return self.datapath


def _datapath(brokers: Iterable[BrokerSpec]) -> MessageDatapath:
    from drld.messages.datapath import MessageDatapath

    return MessageDatapath(brokers, Random(SystemRandom().getrandbits(64)))
