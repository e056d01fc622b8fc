"""The messages of one daemon: its datapath, and the clients of its brokers."""

from __future__ import annotations

from random import Random, SystemRandom
from ssl import SSLContext
from typing import Any

import trio

from drld.daemon.running_plane import PlaneContext, RunningPlane
from drld.messages.datapath import MessageDatapath
from drld.messages.front.server import serve_brokers
from drld.messages.spec import BrokerSpec, MessageMatch, MessagesSpec
from drld.spec import LimiterSpec


class MessagePlane(RunningPlane):
    """The limits on messages of one daemon."""

    has_clients = True

    datapath: MessageDatapath

    def __init__(self, context: PlaneContext, spec: LimiterSpec) -> None:
        """Listen nowhere yet."""
        brokers = spec.plane(MessagesSpec).brokers
        rng = Random(SystemRandom().getrandbits(64))
        super().__init__(MessageMatch, MessageDatapath(brokers, rng))
        self._context = context

    async def serve(self, *, task_status: trio.TaskStatus[Any]) -> None:
        """See `RunningPlane.serve`: pass messages on to the brokers."""
        await serve_brokers(
            self.datapath,
            self._brokers(),
            clock=self._context.clock,
            stopping=self._context.stopping,
            tls=self._tls,
            keeper=self._context.manager,
            task_status=task_status,
        )

    def _tls(self, name: str) -> SSLContext | None:
        """The certificate of a broker's addresses, as its files were at the last reload."""
        tls = next(broker.tls for broker in self._brokers() if broker.name == name)
        return tls.context if tls else None

    def _brokers(self) -> tuple[BrokerSpec, ...]:
        """The tables `[[broker]]` in force."""
        return self._context.files().plane(MessagesSpec).brokers
