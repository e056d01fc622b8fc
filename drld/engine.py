"""All limits of one daemon, their datapath and their gossip socket: one synchronous object.

The engine moves values between the pure `Limiter`s and the shells; when to do it is decided by
`drld.daemon`, which owns the clock, the signals and the tasks.

Gossip is read at the start of a tick and not when it arrives: updates are only used at ticks, and
a wake-up for each datagram would cost more than all the rest of an idle daemon.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from drld.capture.base import Datapath
from drld.errors import ConfigError
from drld.gossip.transport import Transport
from drld.limiter import Limiter, Tick
from drld.spec import LimiterSpec, LimitSpec


@dataclass(slots=True)
class Totals:
    """What the datapath counted for one limit since the daemon started."""

    arrived_bytes: int = 0
    arrived_packets: int = 0
    forwarded_bytes: int = 0
    forwarded_packets: int = 0
    dropped_bytes: int = 0
    dropped_packets: int = 0


@dataclass(slots=True)
class Entry:
    """One limit: its limiter, its schedule, its last tick and its totals."""

    limiter: Limiter
    due_ns: int
    last: Tick | None = None
    totals: Totals = field(default_factory=Totals)


class Engine:
    """Ticks every limit on time."""

    def __init__(
        self, spec: LimiterSpec, datapath: Datapath, transport: Transport, rng: Random
    ) -> None:
        self.spec = spec
        self.datapath = datapath
        self.transport = transport
        self.entries: dict[int, Entry] = {}
        self.unknown_limit: Counter[str] = Counter()
        """Updates of a limit that is not configured here, by peer."""
        self._rng = rng

    def start(self, now_ns: int) -> None:
        """Attach the datapath; every limit enforces its static share.

        Raises:
            DatapathError: the host refuses; nothing is left behind.
        """
        self.entries = {
            limit.id: self._entry(limit, self.spec, now_ns) for limit in self.spec.limits
        }
        self._attach(self.spec, self.entries, now_ns)
        self._set_shares()

    def stop(self) -> None:
        """Detach the datapath and close the socket; safe to call twice."""
        self.datapath.detach()
        self.transport.close()

    def reconfigure(self, spec: LimiterSpec, now_ns: int) -> None:
        """Take over a changed configuration; limits whose id stays keep what they know.

        Raises:
            ConfigError: a key changed that only a restart can change; nothing is changed.
            DatapathError: the host refuses the new rules; the old ones stay.
        """
        fixed = ("name", "listen", "control", "datapath", "firewall", "queue", "timestamps")
        problems = [
            f"limiter.{key}: cannot change from {getattr(self.spec, key)!r} to "
            f"{getattr(spec, key)!r} while the daemon runs: restart it"
            for key in fixed
            if getattr(self.spec, key) != getattr(spec, key)
        ]
        if problems:
            raise ConfigError(problems)
        entries = {limit.id: self._successor(limit, spec, now_ns) for limit in spec.limits}
        self._attach(spec, entries, now_ns)
        for limit in spec.limits:
            entries[limit.id].limiter.reconfigure(limit, spec.members, now_ns)
        self.transport.update_peers({peer.name: peer.address for peer in spec.peers})
        self.entries = entries
        self.spec = spec
        self._set_shares()

    def next_due_ns(self) -> int | None:
        """When the next tick is due; None while there are no limits."""
        return min((entry.due_ns for entry in self.entries.values()), default=None)

    def tick(self, now_ns: int) -> list[tuple[str, Tick]]:
        """Tick every limit that is due; each with its name."""
        self._receive(now_ns)
        ticks = [
            (entry.limiter.limit.name, self._tick(entry, now_ns))
            for entry in self.entries.values()
            if entry.due_ns <= now_ns
        ]
        self.datapath.flush(now_ns)
        return ticks

    def _receive(self, now_ns: int) -> None:
        for peer, update in self.transport.receive():
            entry = self.entries.get(update.limit_id)
            if entry is None:
                self.unknown_limit[peer] += 1
            else:
                entry.limiter.receive(peer, update, now_ns)

    def _tick(self, entry: Entry, now_ns: int) -> Tick:
        limiter = entry.limiter
        interval_ns = limiter.limit.interval_ns
        # Keep the grid while on time; after a stall begin a new one, as no two ticks may crowd.
        late = now_ns - entry.due_ns >= interval_ns
        entry.due_ns = now_ns + interval_ns if late else entry.due_ns + interval_ns
        limit_id = limiter.limit.id
        tick = limiter.tick(self.datapath.read(limit_id, now_ns), now_ns, self._rng)
        self.datapath.program(limit_id, tick.enforcement, tick.evict, now_ns)
        for peer, update in tick.updates:
            self.transport.send(peer, update)
        entry.last = tick
        measured, totals = tick.measurement, entry.totals
        totals.arrived_bytes += measured.arrived_bytes
        totals.arrived_packets += measured.arrived_packets
        totals.forwarded_bytes += measured.forwarded_bytes
        totals.forwarded_packets += measured.forwarded_packets
        totals.dropped_bytes += measured.dropped_bytes
        totals.dropped_packets += measured.dropped_packets
        return tick

    def _attach(self, spec: LimiterSpec, entries: dict[int, Entry], now_ns: int) -> None:
        """Have the datapath enforce these limits, each as its last tick said."""
        pairs = []
        for limit in spec.limits:
            entry = entries[limit.id]
            last = entry.last.enforcement if entry.last else entry.limiter.initial()
            pairs.append((limit, last))
        self.datapath.attach(pairs, now_ns)

    def _set_shares(self) -> None:
        for limit_id, entry in self.entries.items():
            self.datapath.set_share(limit_id, entry.limiter.initial())

    def _successor(self, limit: LimitSpec, spec: LimiterSpec, now_ns: int) -> Entry:
        """The entry of a limit after a reload: the running one where its knowledge still fits."""
        entry = self.entries.get(limit.id)
        if entry is None:
            return self._entry(limit, spec, now_ns)
        old = entry.limiter.limit
        if self.spec.gossip == spec.gossip and (
            (old.allocator, old.parameters, old.ewma, old.interval_ns)
            == (limit.allocator, limit.parameters, limit.ewma, limit.interval_ns)
        ):
            return entry
        fresh = self._entry(limit, spec, now_ns)
        fresh.totals = entry.totals
        return fresh

    @staticmethod
    def _entry(limit: LimitSpec, spec: LimiterSpec, now_ns: int) -> Entry:
        limiter = Limiter(limit, spec.name, spec.members, spec.gossip)
        return Entry(limiter, due_ns=now_ns + limit.interval_ns)
