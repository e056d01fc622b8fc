"""Fleets of limiters in virtual time with messages that wait, at Poisson times.

made = MessageFleet([500, 125, 125], seed=1, loss=0.2)     # messages/s at each limiter
made.run(20)                                               # seconds
made.move("l0", "l1", 0.8)                                 # publishers
made.most                                                  # largest sums of any moment
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from random import Random

from drld.capture.plane import packets
from drld.messages.hold import Hold
from drld.model import NS_PER_S, Enforcement, FlowId, Measurement
from drld.planes.plane import Plane
from drld.spec import LimitSpec
from drld.units import Unit
from testbed.sim.datapath import MemoryDatapath
from testbed.sim.host import Host
from testbed.sim.network import MS, Conditions

from ..factories import TICK_NS, limit_spec
from .limiters import Fleet

ITEM = 1_000_000
MESSAGES = Unit("messages", ITEM, 1, 10**7 * ITEM, 10**6 * ITEM)
RATE, BURST = 1_100, 26
"""Rate and burst of the limit, in messages."""


class HoldDatapath(MemoryDatapath):
    """One limit's bucket and its queue. The messages of an interval are made when it is read."""

    def __init__(self, rate: float, rng: Random) -> None:
        super().__init__()
        self.rate = rate
        """Messages/s that arrive."""
        self.record = Enforcement()
        self.batch = 1
        """Messages that arrive at once."""
        self.room = 1 << 62
        """Messages that may wait; TCP holds the publishers of further ones back."""
        self.waited_ns: list[tuple[int, int]] = []
        """The time at which each message left, and its wait, ns."""
        self._hold: Hold[int] = Hold(self.record, 0)
        self._rng = rng
        self._read_ns = 0

    def attach(self, limits: Iterable[tuple[LimitSpec, Enforcement]], now_ns: int) -> None:
        """See `Datapath`."""
        ((_, self.record),) = limits
        self._hold = Hold(self.record, now_ns)
        self._read_ns = now_ns

    def had_traffic(self, among: Collection[int]) -> list[int]:
        """See `Datapath`."""
        return [1] if 1 in among and (self.rate or len(self._hold)) else []

    def read(self, limit_id: int, now_ns: int) -> Measurement:
        """See `Datapath`."""
        at_ns, arrived = float(self._read_ns), 0
        while self.rate:
            # Intervals have no memory, so those of Poisson arrivals may begin anywhere.
            at_ns += self._rng.expovariate(self.rate / self.batch / NS_PER_S)
            if at_ns > now_ns:
                break
            self._release(int(at_ns))
            for _ in range(min(self.batch, self.room - len(self._hold))):
                arrived += 1
                if self._hold.offer(arrived, int(at_ns)):
                    self.waited_ns.append((int(at_ns), 0))
        self._release(now_ns)
        interval_ns, self._read_ns = now_ns - self._read_ns, now_ns
        backlog = self._hold.take_backlog()
        return Measurement(
            interval_ns=interval_ns,
            arrived_tokens=arrived * ITEM,
            arrived_items=arrived,
            forwarded_tokens=arrived * ITEM,
            forwarded_items=arrived,
            backlog=backlog,
            saturated=self._hold.take_saturated(),
        )

    def _release(self, now_ns: int) -> None:
        self.waited_ns += [(now_ns, it.waited_ns) for it in self._hold.release(now_ns)]

    def program(
        self, limit_id: int, enforcement: Enforcement, evict: Iterable[FlowId], now_ns: int
    ) -> None:
        """See `Datapath`."""
        self.record = enforcement
        self._hold.program(enforcement, now_ns)

    def p99_ms(self, since_ns: int) -> float:
        """99th percentile of the access delays of messages that left since then."""
        waited = sorted(waited for left_ns, waited in self.waited_ns if left_ns >= since_ns)
        return waited[int(0.99 * len(waited))] / MS


class MessageNode(Host):
    """A limiter, through which no message passes while its daemon is dead."""

    def __init__(self, name: str, rate: float, fleet: MessageFleet) -> None:
        self.holds = HoldDatapath(rate, fleet.rng)
        super().__init__(fleet.spec(name), fleet.clock, fleet.network, fleet.rng)

    def planes(self) -> list[Plane]:
        """See `Host`."""
        return [packets(self.holds)]

    def start(self, began_ns: int) -> None:
        """See `Host`."""
        self.engine.start(began_ns)
        self._clock.at(self.engine.next_due_ns(), self._tick, self._life)

    def _begin_grace(self) -> None:
        """Nothing enforces anything."""


class MessageFleet(Fleet[MessageNode]):
    """Limiters of one limit on messages."""

    def __init__(
        self,
        rates: Sequence[float],
        *,
        seed: int,
        fabric: str = "mesh",
        allocator: str = "adaptive",
        loss: float = 0.0,
        delay_ns: int = 10 * MS,
    ) -> None:
        """Start all limiters; `rates` are in messages/s."""
        super().__init__(
            limit_spec(allocator, rate=RATE * ITEM, burst=BURST * ITEM, unit=MESSAGES),
            len(rates),
            seed=seed,
            fabric=fabric,
            conditions=Conditions(delay_ns=delay_ns, jitter_ns=20 * MS, loss=loss),
            begin_ns=1000 * TICK_NS,
        )
        self.most = [0.0, 0.0]
        """The largest sums of the rates and of the depths in force, over the limit's."""
        self.nodes = {
            name: MessageNode(name, rate, self)
            for name, rate in zip(self.names, rates, strict=True)
        }
        for node in self.nodes.values():
            node.watch = self._note
            node.start(self.now_ns - self.rng.randrange(TICK_NS))
        self._note()

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.run(self.now_ns + round(seconds * NS_PER_S))

    def move(self, source: str, target: str, part: float) -> None:
        """Have a part of the publishers of one limiter at another."""
        moved = self.nodes[source].holds.rate * part
        self.nodes[source].holds.rate -= moved
        self.nodes[target].holds.rate += moved

    def in_force(self, name: str) -> tuple[float, float]:
        """Rate and depth of a limiter, over the limit's."""
        node = self.nodes[name]
        if not node.alive:
            return 0.0, 0.0
        record = node.holds.record
        return record.fill_rate / (RATE * ITEM), (record.depth or 0) / (BURST * ITEM)

    @property
    def rate_parts(self) -> list[float]:
        """The rate of each limiter, over the limit's."""
        return [self.in_force(name)[0] for name in self.names]

    def _note(self, *_: object) -> None:
        """A record may have changed: nothing else changes a sum, so this sees all of a sampling."""
        rates, depths = zip(*(self.in_force(name) for name in self.names), strict=True)
        self.most = [max(self.most[0], sum(rates)), max(self.most[1], sum(depths))]
