"""The fronts of all brokers of a daemon: they take clients until the daemon stops.

A reload. `Fronts.prepare` does all that may fail: it opens the sockets of new addresses and the
sources of arrival times. Then the daemon puts the limits into force, and `Change.commit` moves the
clients: it cannot fail. So a bad configuration changes nothing.

- A new broker listens.
- A broker that moves takes clients on its new addresses. drld accepts the clients that have
  connected to an old address before it closes that one. Connections stay.
- A broker that is gone takes no more clients. Its connections end as at a stop.
- A broker with another `server` keeps its addresses. Its connections end as at a stop, so that
  their clients connect to the new server.
- Other settings hold for new connections; `hold` and `max_connections` hold at once.

The stop. drld accepts no more clients. It reads what clients have sent until then, and delivers it
as its tokens come, for at most `DRAIN_NS`. Each connection ends when nothing of it waits. What
waits after that time is handed back: drld never acknowledges a message that it forwards, so its
client has no acknowledgement and sends it again (QoS 1 and 2). Messages without acknowledgement are
lost then, and counted.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

import trio

from drld.errors import ConfigError
from drld.log_event import event
from drld.messages.datapath import MessageDatapath
from drld.messages.front import arrival
from drld.messages.front.broker_front import BrokerFront
from drld.messages.front.journal import REASONS
from drld.messages.front.listeners import Keeper, Listeners, NoKeeper, shown
from drld.messages.front.pump import Pump
from drld.messages.spec import BrokerSpec
from drld.model import NS_PER_S

log = logging.getLogger("drld.messages")

DRAIN_NS = 10 * NS_PER_S
"""The longest time in which drld delivers what waits after the stop, or of a broker that is gone.
systemd kills a service 90 s after it has asked it to stop, so there is time for the rest."""
_LOOK_S = 0.02


class Change(NamedTuple):
    """A change of brokers that is prepared: call one of these."""

    commit: Callable[[], None]
    """Puts the change into force; it raises no error."""
    undo: Callable[[], None]
    """Gives back what has been prepared."""


class Fronts:
    """The fronts of all brokers, with one pump (`drld.messages.datapath.Front`)."""

    def __init__(
        self, datapath: MessageDatapath, clock: Callable[[], int], keeper: Keeper | None = None
    ) -> None:
        """Begin without brokers.

        Args:
            datapath: has the gate.
            clock: monotonic time, ns.
            keeper: keeps the listening sockets for the next daemon.
        """
        self.pump = Pump(datapath.gate, clock)
        self.brokers: dict[str, BrokerFront] = {}
        """The fronts by the names of their brokers."""
        self._datapath = datapath
        self._listeners = Listeners(keeper or NoKeeper())
        self._sources: dict[str, arrival.Stamps] = {}
        """The sources of arrival times by the setting `timestamps` that wants them."""
        self._leaving: list[BrokerFront] = []
        """The fronts of brokers that are gone, while their connections may last."""
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """The counts of each broker, those that are gone included."""
        datapath.front = self

    def prepare(self, brokers: Iterable[BrokerSpec]) -> Change:
        """Prepare to have these brokers from now on: open what they need, and change no other.

        Raises:
            ConfigError: an address cannot be bound, or a broker has another protocol now; nothing
                is changed.
            DatapathError: the kernel refuses the source of arrival times; nothing is changed.
        """
        specs = {broker.name: broker for broker in brokers}
        problems = [
            f"broker {name}: protocol: cannot change from {front.spec.protocol!r} to "
            f"{specs[name].protocol!r} while the daemon runs: give the broker another name"
            for name, front in self.brokers.items()
            if name in specs and specs[name].protocol != front.spec.protocol
        ]
        if problems:
            raise ConfigError(problems)
        for wanted in {spec.timestamps for spec in specs.values()} - self._sources.keys():
            self._sources[wanted] = arrival.stamps(wanted)
            self.pump.sources.append(self._sources[wanted])
        opened = self._listeners.open(it for spec in specs.values() for it in spec.listen)
        before = self._datapath.brokers
        # In between, the engine may attach the limits of either configuration.
        self._datapath.brokers = {**before, **specs}

        def undo() -> None:
            self._listeners.close(opened)
            self._datapath.set_brokers(before)

        return Change(partial(self._commit, specs), undo)

    def _commit(self, specs: Mapping[str, BrokerSpec]) -> None:
        """Have these brokers from now on (`prepare`)."""
        listeners = self._listeners
        closed = listeners.others({it for spec in specs.values() for it in spec.listen})
        stay: dict[str, BrokerFront] = {}
        for name, front in self.brokers.items():
            # Clients that have connected to an address which is about to close are not refused.
            front.empty(listeners.sockets(closed))
            if name in specs and specs[name].server == front.spec.server:
                stay[name] = front
                front.keep(listeners.sockets(specs[name].listen))
            else:
                self._part(front, replaced=name in specs)
        self._datapath.set_brokers(specs)
        before, self.brokers = self.brokers, {}
        for name, spec in specs.items():
            self.brokers[name] = self._front(spec, stay.get(name))
            if name not in before or before[name].spec.listen != spec.listen:
                self._log_listening(spec)
        listeners.close(closed)

    def _front(self, spec: BrokerSpec, before: BrokerFront | None) -> BrokerFront:
        """Make the front of a broker, or change the one that it had, and have it listen."""
        stamps = self._sources[spec.timestamps]
        front = before or BrokerFront(spec, self.pump, stamps, self._counts[spec.name])
        front.change(spec, stamps)
        front.listen(self._listeners.sockets(spec.listen))
        return front

    def _log_listening(self, spec: BrokerSpec) -> None:
        where = ", ".join(map(shown, spec.listen))
        log.info(
            "broker %s: listening on %s, %s",
            *(spec.name, where, self.reason),
            extra=event("broker.listening", spec.name, broker=spec.name, address=where),
        )

    def _part(self, front: BrokerFront, *, replaced: bool) -> None:
        """End the connections of a broker that is gone, or that has another server now."""
        name, count = front.spec.name, len(front.connections)
        why = "has another server" if replaced else "is removed"
        log.info(
            "broker %s: %s, and its %d connections end when nothing of them waits",
            *(name, why, count),
            extra=event("broker.removed", name, broker=name, connections=count),
        )
        front.leave()
        self._leaving.append(front)
        self.pump.reactor.after(DRAIN_NS, partial(self._give_up, front))

    def _give_up(self, front: BrokerFront) -> None:
        """End what is left of a front that has had its time."""
        self._hand_back(front.fail())
        self._leaving.remove(front)

    @staticmethod
    def _hand_back(frames: int) -> None:
        if frames:
            log.warning(
                "connections ended while messages waited: %d frames are handed back or lost",
                *(frames,),
                extra=event("broker.handed_back", frames=frames),
            )

    def wake(self) -> None:
        """Look again at the time when messages may leave: limits have changed."""
        self.pump.wake()

    def counters(self) -> Mapping[str, int]:
        """The counts of all brokers together: connections by what became of them, and what is held
        now."""
        counts = {
            "broker_connections": self.connections,
            "broker_held_bytes": sum(it.memory.held for it in self._all()),
            "broker_errors": self.pump.errors,
        }
        for reason in REASONS:
            counts[f"broker_{reason}"] = sum(it[reason] for it in self._counts.values())
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
        """The sources of arrival times, for an operator."""
        return ", ".join(sorted({source.reason for source in self._sources.values()}))

    @property
    def connections(self) -> int:
        """The number of connections."""
        return sum(len(front.connections) for front in self._all())

    def _all(self) -> list[BrokerFront]:
        return [*self.brokers.values(), *self._leaving]

    async def run(self, stopping: trio.Event) -> None:
        """Move messages until `stopping` is set and every connection has ended."""
        clock = self.pump.reactor.clock
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.pump.run)
                await stopping.wait()
                for front in self._all():
                    front.leave()
                until_ns = clock() + DRAIN_NS
                while self.connections and clock() < until_ns:
                    await trio.sleep(_LOOK_S)
                nursery.cancel_scope.cancel()
        finally:
            self._datapath.front = None
            self._listeners.release()
            self._hand_back(sum(front.fail() for front in self._all()))
            for source in self._sources.values():
                source.stop()
            self.pump.close()
