"""Fleets of whole limiters in virtual time, from one seed: the builder of simulated fleets.

A limiter is a `testbed.sim.host.Host`: drld's own engine, a datapath and a socket in memory. A
`PacketFleet` has packets in front of policers. A `FluidFleet` has traffic that is a rate, so the
sum of the local limits in force is known at every moment. Faults are the same for both:

    made = FluidFleet("mesh", [3, 0, 9], seed=1)     # number of flows of each limiter
    made.run(100)                                    # intervals
    made.nodes["l0"].kill()                          # or revive(), freeze(ns)
    made.network.partition(["l0"], ["l1", "l2"])     # or cut({(from, to)}), network.heal()
    made.network.bounded_loss = 0.2
    made.in_force()                                  # sum of the local limits, over the limit

`tests.fleets.events` draws such faults at random. Fleets with the simulator's TCP are in
`tests.fleets.tcp`, and fabrics without an engine in `tests.fleets.fabrics`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random
from typing import Any, Generic, TypeVar

from drld.gossip.fabrics.base import Fabric
from drld.limiter import Tick
from drld.model import NS_PER_S
from drld.spec import LimiterSpec, LimitSpec, ProbeSpec
from testbed.sim.host import Host
from testbed.sim.mailbox import Datagram
from testbed.sim.network import MS, Conditions, Network
from testbed.tcp.clock import Clock

from ..factories import TICK_NS, flow, gossip_spec, limit_spec, limiter_spec
from .fluid import LIMIT, FluidDatapath

PACKET = 1500
RTT_NS = 40 * MS
LOSSES_IN_A_ROW = 9
"""More losses in a row are a link that is cut, and the end of such a cut is an event."""
N = TypeVar("N", bound=Host)


class LossyNetwork(Network[Datagram]):
    """A network that can also lose a bounded number of datagrams in a row on each path."""

    def __init__(self, seed: int, conditions: Conditions) -> None:
        super().__init__(seed, conditions)
        self.bounded_loss = 0.0
        """Probability of the loss of a datagram, up to `LOSSES_IN_A_ROW` in a row."""
        self._lost_in_a_row: dict[tuple[str, str], int] = {}
        self._fate = Random(f"{seed}/fate")

    def send(self, source: str, destination: str, datagram: Datagram, now_ns: int) -> None:
        """See `Network`."""
        path = source, destination
        row = self._lost_in_a_row.get(path, 0)
        if row < LOSSES_IN_A_ROW and self._fate.random() < self.bounded_loss:
            self._lost_in_a_row[path] = row + 1
        else:
            self._lost_in_a_row[path] = 0
            super().send(source, destination, datagram, now_ns)


class Fleet(Generic[N]):
    """Limiters l0, l1, ... of one limit, under one virtual clock."""

    def __init__(
        self,
        limit: LimitSpec,
        size: int,
        *,
        seed: int,
        fabric: str,
        conditions: Conditions,
        probes: ProbeSpec | None = None,
        begin_ns: int = 0,
    ) -> None:
        self.names = [f"l{number}" for number in range(size)]
        self.members = list(self.names)
        """Limiters that have not left."""
        self.limit = limit
        self.rng = Random(seed)
        self.clock = Clock(begin_ns)
        self.network = LossyNetwork(seed, conditions)
        self.nodes: dict[str, N] = {}
        self._gossip = gossip_spec(fabric)
        self._probes = probes

    def spec(self, name: str) -> LimiterSpec:
        """The configuration of a limiter, with the members of this moment."""
        peers = [member for member in self.members if member != name]
        return limiter_spec(
            self.limit, peers=peers, name=name, gossip=self._gossip, probes=self._probes
        )

    def fabric(self, name: str) -> Fabric[Any]:
        """The fabric of a limiter."""
        return self.nodes[name].managed.limiter.fabric

    @property
    def now_ns(self) -> int:
        return self.clock.now_ns

    def at(self, when_ns: int, what: Callable[[], object]) -> None:
        """Do something later."""
        self.clock.at(when_ns, lambda _: what())

    def cut(self, paths: Iterable[tuple[str, str]]) -> None:
        """Let nothing through on these paths, and everything on all others."""
        self.network.cut = set(paths)


class PacketNode(Host):
    """A limiter with the number of its limit's ticks and the times of its forwarded packets."""

    def __init__(self, name: str, fleet: PacketFleet) -> None:
        super().__init__(fleet.spec(name), fleet.clock, fleet.network, fleet.rng)
        self.ticks = 0
        self.times: list[int] = []
        self.watch = self._count

    @property
    def last(self) -> Tick | None:
        return self.managed.last

    @property
    def fill_rate(self) -> int:
        return (self.last.enforcement if self.last else self.managed.limiter.initial()).fill_rate

    def _count(self, _host: Host, _tick: Tick) -> None:
        self.ticks += 1


class PacketFleet(Fleet[PacketNode]):
    """Limiters with packets of simulated flows."""

    def __init__(
        self, limit: LimitSpec, size: int, *, seed: int, fabric: str = "mesh", **conditions: Any
    ) -> None:
        super().__init__(limit, size, seed=seed, fabric=fabric, conditions=Conditions(**conditions))
        self.nodes = {name: PacketNode(name, self) for name in self.names}
        self.flow_bytes: defaultdict[int, int] = defaultdict(int)
        for node in self.nodes.values():
            node.start(-self.rng.randrange(min(TICK_NS, limit.policy.interval_ns)))

    def run_until(self, end_s: float) -> None:
        """Let time pass."""
        self.clock.run(round(end_s * NS_PER_S))

    def forwarded_bps(self, name: str, since_s: float) -> float:
        """Rate that a limiter forwarded from then to now, bytes/s."""
        since_ns = since_s * NS_PER_S
        packets = sum(when >= since_ns for when in self.nodes[name].times)
        return packets * PACKET * NS_PER_S / (self.now_ns - since_ns)

    def constant(self, name: str, number: int, rate: float) -> None:
        """Start a flow that sends `rate` bytes/s whatever is dropped."""
        gap_ns = round(PACKET * NS_PER_S / rate)

        def send() -> None:
            self.packet(name, number)
            self.at(self.now_ns + gap_ns, send)

        self.at(self.now_ns + self.rng.randrange(gap_ns), send)

    def burst(self, name: str, number: int, packets: int) -> None:
        """Start a flow of so many packets, a millisecond apart."""
        for index in range(packets):
            self.at(self.now_ns + index * MS, partial(self.packet, name, number))

    def elastic(self, name: str, number: int, ceiling: float = float("inf")) -> None:
        """Start a flow that sends a window in each round trip and halves it after a loss.

        This is the additive increase and multiplicative decrease of TCP's congestion avoidance.
        `ceiling` (bytes/s) is a bottleneck elsewhere.
        """
        window = 2.0
        highest = ceiling * RTT_NS / NS_PER_S / PACKET

        def round_trip() -> None:
            nonlocal window
            count = int(window)
            for index in range(count):
                when_ns = self.now_ns + index * RTT_NS // count + self.rng.randrange(100_000)
                self.at(when_ns, partial(self.packet, name, number))
            passed_before = self.flow_bytes[number]

            def acknowledge() -> None:
                nonlocal window
                lost = self.flow_bytes[number] - passed_before < count * PACKET
                window = max(window / 2, 1.0) if lost else min(window + 1, max(highest, 1.0))
                round_trip()

            self.at(self.now_ns + RTT_NS + 200_000, acknowledge)

        self.at(self.now_ns + self.rng.randrange(RTT_NS), round_trip)

    def packet(self, name: str, number: int) -> None:
        """Send a packet of a flow now."""
        node = self.nodes[name]
        if node.passes(flow(number), PACKET):
            node.times.append(self.now_ns)
            self.flow_bytes[number] += PACKET


class FluidNode(Host):
    """A limiter whose traffic is a rate. Its datapath stays; its daemon comes and goes."""

    def __init__(self, name: str, flows: int, fleet: FluidFleet) -> None:
        super().__init__(fleet.spec(name), fleet.clock, fleet.network, fleet.rng)
        self.flows = flows
        self._fleet = fleet
        self.datapath = self.fluid = FluidDatapath(flows)
        self._began_ns = 0

    def begin(self, began_ns: int) -> None:
        """Start a daemon as if at that time. It knows nothing, and its socket is empty."""
        self._began_ns = began_ns
        for _ in self._fleet.network.receive(self.name, self._fleet.now_ns):
            pass
        self.engine.node.spec = self._fleet.spec(self.name)
        self.mailbox.update_peers({peer.name: peer.address for peer in self.engine.spec.peers})
        self.revive()

    def start(self, _now_ns: int) -> None:
        """See `Host`."""
        self.engine.start(self._began_ns)
        self._clock.at(self.engine.next_due_ns(), self._tick, self._life)

    def reload(self) -> None:
        """Have the daemon, if it lives, read its file, with the members of this moment."""
        now_ns = self._clock.now_ns
        if self.alive and now_ns < self.frozen_until_ns:
            self._clock.at(self.frozen_until_ns, self._reload_later, self._life)
        elif self.alive:
            self.engine.reconfigure(self._fleet.spec(self.name), now_ns, reattach=False)

    def _reload_later(self, life: int) -> None:
        if life == self._life:
            self.reload()

    def leave(self) -> None:
        """Stop the daemon in order, and its traffic."""
        if self.alive:
            self.engine.stop()
        self.kill()
        self.fluid.flows = 0

    @property
    def frozen_until_ns(self) -> int:
        return self._frozen_until_ns

    def _begin_grace(self) -> None:
        # The datapath falls back by itself; see `FluidDatapath.passes`.
        self._fleet.at(self.fluid.falls_back_ns, self._fleet.note)

    def _tick(self, life: int) -> None:
        super()._tick(life)
        self._fleet.note()


class FluidFleet(Fleet[FluidNode]):
    """Limiters whose local limits in force are known at every moment."""

    def __init__(
        self,
        fabric: str,
        flows: Sequence[int],
        *,
        seed: int,
        allocator: str = "fps",
        loss: float = 0.0,
        delay_ns: int = 10 * MS,
        **limit: Any,
    ) -> None:
        """Start all limiters.

        Args:
            fabric: its name.
            flows: number of flows of each limiter; each flow wants more than the limit.
            seed: of the network and the limiters.
            allocator: its name.
            loss: bounded loss on each path.
            delay_ns: delay of each path, one way; up to 20 ms are added at random.
            limit: fields of the limit's policy.
        """
        super().__init__(
            limit_spec(allocator, rate=LIMIT, **limit),
            len(flows),
            seed=seed,
            fabric=fabric,
            conditions=Conditions(delay_ns=delay_ns, jitter_ns=20 * MS),
            probes=ProbeSpec(),
            begin_ns=1000 * TICK_NS,
        )
        self.network.bounded_loss = loss
        self.most = self.least = 0.0
        """The largest and the smallest sum since `watch`."""
        self.look: Callable[[], None] | None = None
        """Called when the enforcement may have changed."""
        self._watched = False
        self.nodes = {
            name: FluidNode(name, count, self)
            for name, count in zip(self.names, flows, strict=True)
        }
        for node in self.nodes.values():
            node.begin(self.now_ns - self.rng.randrange(TICK_NS))

    def run(self, intervals: float) -> None:
        """Let time pass."""
        self.clock.run(self.now_ns + round(intervals * TICK_NS))

    def in_force(self) -> float:
        """Sum of the local limits in force, with those of dead limiters, over the limit."""
        now_ns = self.now_ns
        return math.fsum(node.fluid.passes(now_ns) for node in self.nodes.values()) / LIMIT

    def note(self) -> None:
        """Take note that the enforcement may have changed."""
        if self._watched:
            total = self.in_force()
            self.most = max(self.most, total)
            self.least = min(self.least, total)
        if self.look is not None:
            self.look()

    def watch(self) -> None:
        """Begin to look for the largest and the smallest sum."""
        self._watched = True
        self.most = self.least = self.in_force()

    def passes(self, name: str) -> float:
        """The local limit of one limiter, over the limit."""
        return self.nodes[name].fluid.passes(self.now_ns) / LIMIT

    def believed(self, name: str) -> float:
        """The flow weight of all, as one limiter believes it."""
        last = self.nodes[name].managed.last
        assert last is not None
        return last.view.remote + last.allocation.value

    @property
    def detection_intervals(self) -> int:
        """The detection time."""
        return -(-self.fabric(self.members[0]).detection_ns // TICK_NS)
