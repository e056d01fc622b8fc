"""A fleet of real `Engine`s and `Policer`s on the simulated network, with simulated traffic.

Everything that the daemon does to a packet and at a tick is done here by the same pure code, in
virtual time and from one seed; only the packets and the datagrams' journey are made up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from drld.limiter import Tick
from drld.model import NS_PER_S
from drld.spec import LimiterSpec, LimitSpec
from testbed.sim.host import Host
from testbed.sim.mailbox import Datagram
from testbed.sim.network import Conditions, Network
from testbed.tcp.clock import Clock

from ..factories import TICK_NS, flow, gossip_spec, limiter_spec

PACKET = 1500
RTT_NS = 40_000_000


class ToyHost(Host):
    """A limiter, how often its limit was ticked, and when it forwarded packets."""

    def __init__(self, spec: LimiterSpec, fleet: Fleet) -> None:
        super().__init__(spec, fleet.clock, fleet.network, fleet.rng)
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


class Fleet:
    """Limiters, their gossip and their traffic under one virtual clock."""

    def __init__(
        self, limit: LimitSpec, size: int, *, seed: int, fabric: str = "mesh", **conditions: Any
    ) -> None:
        names = [f"l{number}" for number in range(size)]
        self.rng = Random(seed)
        self.network: Network[Datagram] = Network(seed, Conditions(**conditions))
        self.clock = Clock()
        gossip = gossip_spec(fabric)
        self.hosts = {
            name: ToyHost(
                limiter_spec(
                    limit, name=name, gossip=gossip, peers=[peer for peer in names if peer != name]
                ),
                self,
            )
            for name in names
        }
        self.flow_bytes: defaultdict[int, int] = defaultdict(int)
        for host in self.hosts.values():
            host.start(-self.rng.randrange(min(TICK_NS, limit.policy.interval_ns)))

    @property
    def now_ns(self) -> int:
        return self.clock.now_ns

    def at(self, when_ns: int, what: Callable[[], None]) -> None:
        """Do something later."""
        self.clock.at(when_ns, lambda _: what())

    def run(self, until_s: float) -> None:
        """Let time pass."""
        self.clock.run(round(until_s * NS_PER_S))

    def forwarded_bps(self, name: str, since_s: float) -> float:
        """What a limiter forwarded from then to now, bytes/s."""
        since_ns = since_s * NS_PER_S
        packets = sum(when >= since_ns for when in self.hosts[name].times)
        return packets * PACKET * NS_PER_S / (self.now_ns - since_ns)

    def constant(self, name: str, number: int, rate: float) -> None:
        """A flow that sends `rate` bytes/s whatever is dropped, from now on."""
        gap_ns = round(PACKET * NS_PER_S / rate)

        def send() -> None:
            self.packet(name, number)
            self.at(self.now_ns + gap_ns, send)

        self.at(self.now_ns + self.rng.randrange(gap_ns), send)

    def burst(self, name: str, number: int, packets: int) -> None:
        """A flow of so many packets, a millisecond apart."""
        for index in range(packets):
            self.at(self.now_ns + index * 1_000_000, partial(self.packet, name, number))

    def elastic(self, name: str, number: int, ceiling: float = float("inf")) -> None:
        """A flow that sends a window in each round trip and halves it after a loss.

        Additive increase, multiplicative decrease: what TCP's congestion avoidance comes to.
        `ceiling` (bytes/s) is a bottleneck elsewhere.
        """
        window = 2.0
        highest = ceiling * RTT_NS / NS_PER_S / PACKET

        def round_trip() -> None:
            nonlocal window
            lost = False
            count = int(window)
            for index in range(count):
                when_ns = self.now_ns + index * RTT_NS // count + self.rng.randrange(100_000)
                self.at(when_ns, send)
            passed_before = self.flow_bytes[number]

            def acknowledge() -> None:
                nonlocal window, lost
                lost = self.flow_bytes[number] - passed_before < count * PACKET
                window = max(window / 2, 1.0) if lost else min(window + 1, max(highest, 1.0))
                round_trip()

            self.at(self.now_ns + RTT_NS + 200_000, acknowledge)

        def send() -> None:
            self.packet(name, number)

        self.at(self.now_ns + self.rng.randrange(RTT_NS), round_trip)

    def packet(self, name: str, number: int) -> None:
        """A packet of a flow, now."""
        host = self.hosts[name]
        if host.passes(flow(number), PACKET):
            host.times.append(self.now_ns)
            self.flow_bytes[number] += PACKET
