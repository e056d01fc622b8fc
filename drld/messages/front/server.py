"""Takes the clients of all brokers of a daemon, until it stops.

The stop. No client is accepted any more. What clients have sent until then is read, and delivered
as its tokens come, for at most `DRAIN_NS`. Each connection ends when nothing of it waits. What
waits after that time is handed back: drld never acknowledges a message that it forwards, so its
client has no acknowledgement and sends it again (QoS 1 and 2). Messages without acknowledgement are
lost then, and counted.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from ssl import SSLContext
from typing import Any

import trio

from drld.log_event import event
from drld.messages.datapath import MessageDatapath
from drld.messages.front import arrival
from drld.messages.front.broker_front import BrokerFront
from drld.messages.front.listeners import Keeper, Listeners, NoKeeper, shown
from drld.messages.front.pump import Pump
from drld.messages.spec import BrokerSpec
from drld.model import NS_PER_S

log = logging.getLogger("drld.messages")

DRAIN_NS = 10 * NS_PER_S
"""Longest time in which what waits is delivered after the stop."""
_LOOK_S = 0.02


class Fronts:
    """The fronts of all brokers, with one pump."""

    def __init__(
        self,
        datapath: MessageDatapath,
        brokers: Iterable[BrokerSpec],
        clock: Callable[[], int],
        tls: Callable[[str], SSLContext | None],
    ) -> None:
        """Nothing listens yet; `tls` is asked for the context of a broker at each connection.

        Raises:
            DatapathError: the kernel refuses the source of arrival times that a broker wants.
        """
        self.pump = Pump(datapath.gate, clock)
        self._datapath = datapath
        self._tls = tls
        self._sources: dict[str, arrival.Stamps] = {}
        self.brokers = {broker.name: self._front(broker) for broker in brokers}
        datapath.front = self

    def _front(self, broker: BrokerSpec) -> BrokerFront:
        wanted = broker.timestamps
        if wanted not in self._sources:
            self._sources[wanted] = arrival.stamps(wanted)
            self.pump.sources.append(self._sources[wanted])
        context = partial(self._tls, broker.name)
        return BrokerFront(broker, self.pump, self._sources[wanted], context)

    def listen(self, listeners: Mapping[str, Iterable[socket.socket]]) -> None:
        """Take clients on these sockets, by the names of brokers.

        Raises:
            DatapathError: the kernel refuses the source of arrival times.
        """
        for name, sockets in listeners.items():
            for sock in sockets:
                self.brokers[name].listen(sock)

    def wake(self) -> None:
        """Look again at the time when messages may leave: limits have changed."""
        self.pump.wake()

    def counters(self) -> Mapping[str, int]:
        """Of all brokers together: connections by what became of them, and what is held now."""
        counts = {
            "broker_connections": sum(len(it.connections) for it in self.brokers.values()),
            "broker_held_bytes": sum(it.held for it in self.brokers.values()),
            "broker_errors": self.pump.errors,
        }
        for reason in REASONS:
            counts[f"broker_{reason}"] = sum(it.counts[reason] for it in self.brokers.values())
        for source in self._sources.values():
            for name, count in (
                ("stamped", source.tally.stamped),
                ("unstamped", source.tally.unstamped),
                ("stamps_lost", source.lost),
            ):
                counts[f"messages_{name}"] = counts.get(f"messages_{name}", 0) + count
        return counts

    @property
    def reason(self) -> str:
        """The source of arrival times, for an operator."""
        return ", ".join(sorted({source.reason for source in self._sources.values()}))

    def leave(self) -> None:
        """Accept no clients, and end each connection when nothing of it waits."""
        for front in self.brokers.values():
            front.refuse()
            for connection in [*front.connections]:
                connection.leave()

    @property
    def connections(self) -> int:
        """The number of connections."""
        return sum(len(front.connections) for front in self.brokers.values())

    def close(self) -> None:
        """End all connections."""
        waiting = sum(len(flow.lane) for flow in self.pump.flows.values())
        if waiting:
            log.warning(
                "stopped while messages waited: %d frames are handed back or lost",
                *(waiting,),
                extra=event("broker.handed_back", frames=waiting),
            )
        for front in self.brokers.values():
            for connection in [*front.connections]:
                connection.fail()
        for source in self._sources.values():
            source.stop()
        self.pump.close()


REASONS = (
    "accepted",
    "refused",
    "too_slow",
    "malformed",
    "unreachable",
    "broker_malformed",
    "undelivered",
)
"""What is counted of connections (`BrokerFront.counts`)."""


async def serve_brokers(
    datapath: MessageDatapath,
    brokers: Iterable[BrokerSpec],
    *,
    clock: Callable[[], int],
    stopping: trio.Event,
    tls: Callable[[str], SSLContext | None],
    keeper: Keeper | None = None,
    task_status: trio.TaskStatus[Any] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Take clients until `stopping` is set and every connection has ended.

    Args:
        datapath: has the gate.
        brokers: with the addresses of their clients.
        clock: monotonic time, ns.
        stopping: set when the daemon stops.
        tls: what a broker's clients speak, by its name, as its files are now; None: no TLS.
        keeper: keeps the listening sockets for the next daemon.
        task_status: started with the fronts when all addresses are bound.

    Raises:
        ConfigError: an address cannot be bound.
        DatapathError: the kernel refuses the source of arrival times that a broker wants.
    """
    specs = list(brokers)
    fronts = Fronts(datapath, specs, clock, tls)
    listeners = Listeners(keeper or NoKeeper())
    try:
        fronts.listen(listeners.open(specs))
        for spec in specs:
            where = ", ".join(map(shown, spec.listen))
            log.info(
                "broker %s: listening on %s, %s",
                *(spec.name, where, fronts.reason),
                extra=event("broker.listening", spec.name, broker=spec.name, address=where),
            )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fronts.pump.run)
            task_status.started(fronts)
            await stopping.wait()
            fronts.leave()
            until_ns = clock() + DRAIN_NS
            while fronts.connections and clock() < until_ns:
                await trio.sleep(_LOOK_S)
            nursery.cancel_scope.cancel()
    finally:
        datapath.front = None
        listeners.close()
        fronts.close()
