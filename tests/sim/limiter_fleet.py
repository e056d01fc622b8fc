"""A fleet of real `Engine`s and `Policer`s on the simulated network, with simulated traffic.

Everything that the daemon does to a packet and at a tick is done here by the same pure code, in
virtual time and from one seed; only the packets and the datagrams' journey are made up.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any, cast

from drld.capture.policer import police
from drld.engine import Engine, Entry
from drld.gossip.transport import Transport
from drld.gossip.wire import TAG_SIZE, decode_untrusted, encode
from drld.limiter import Tick
from drld.model import NS_PER_S, FlowId, Update
from drld.spec import GossipSpec, LimitSpec

from ..engine_fakes import FakeDatapath
from ..factories import TICK_NS, flow, gossip_spec, limiter_spec
from .network import Conditions, Network

PACKET = 1500
RTT_NS = 40_000_000


class Mailbox:
    """A limiter's gossip socket (`drld.gossip.transport.Transport`) on the simulated network."""

    def __init__(self, name: str, fleet: Fleet) -> None:
        self._name = name
        self._fleet = fleet

    def send(self, peer: str, updates: Sequence[Update]) -> None:
        datagram = b"".join(map(encode, updates)) + bytes(TAG_SIZE)
        self._fleet.network.send(self._name, peer, datagram, self._fleet.now_ns)

    def receive(self) -> Iterator[tuple[str, Update]]:
        for peer, datagram in self._fleet.network.receive(self._name, self._fleet.now_ns):
            for update in decode_untrusted(datagram):
                yield peer, update


class Host:
    """One limiter: its engine, its datapath, and what it forwarded."""

    def __init__(self, name: str, limit: LimitSpec, fleet: Fleet, gossip: GossipSpec) -> None:
        self.name = name
        self.datapath = FakeDatapath()
        peers = [peer for peer in fleet.names if peer != name]
        spec = limiter_spec(limit, peers=peers, name=name, gossip=gossip)
        mailbox = cast(Transport, Mailbox(name, fleet))
        self.engine = Engine(spec, self.datapath, mailbox, fleet.rng)
        self.engine.start(0)
        self.alive = True
        self.ticks = 0
        """How often its limit was ticked."""
        self.forwarded: list[int] = []
        """Times of the packets that passed."""

    @property
    def entry(self) -> Entry:
        (entry,) = self.engine.entries.values()
        return entry

    @property
    def last(self) -> Tick | None:
        return self.entry.last

    @property
    def fill_rate(self) -> int:
        return (self.last.enforcement if self.last else self.entry.limiter.initial()).fill_rate


class Fleet:
    """Limiters, their gossip and their traffic under one virtual clock."""

    def __init__(
        self, limit: LimitSpec, size: int, *, seed: int, fabric: str = "mesh", **conditions: Any
    ) -> None:
        self.names = [f"l{number}" for number in range(size)]
        self.rng = Random(seed)
        self.network: Network[bytes] = Network(seed, Conditions(**conditions))
        self.now_ns = 0
        self.hosts = {name: Host(name, limit, self, gossip_spec(fabric)) for name in self.names}
        self.flow_bytes: defaultdict[int, int] = defaultdict(int)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        for host in self.hosts.values():
            self.at(self.rng.randrange(1, TICK_NS), partial(self._tick, host))

    def at(self, when_ns: int, what: Callable[[], None]) -> None:
        """Do something later."""
        heapq.heappush(self._events, (when_ns, next(self._order), what))

    def run(self, until_s: float) -> None:
        """Let time pass."""
        until_ns = round(until_s * NS_PER_S)
        while self._events and self._events[0][0] <= until_ns:
            self.now_ns, _, what = heapq.heappop(self._events)
            what()
        self.now_ns = until_ns

    def forwarded_bps(self, name: str, since_s: float) -> float:
        """What a limiter forwarded from then to now, bytes/s."""
        since_ns = since_s * NS_PER_S
        packets = sum(when >= since_ns for when in self.hosts[name].forwarded)
        return packets * PACKET * NS_PER_S / (self.now_ns - since_ns)

    def constant(self, name: str, number: int, rate: float) -> None:
        """A flow that sends `rate` bytes/s whatever is dropped, from now on."""
        gap_ns = round(PACKET * NS_PER_S / rate)

        def send() -> None:
            self._packet(name, number, flow(number))
            self.at(self.now_ns + gap_ns, send)

        self.at(self.now_ns + self.rng.randrange(gap_ns), send)

    def burst(self, name: str, number: int, packets: int) -> None:
        """A flow of so many packets, a millisecond apart."""
        for index in range(packets):
            self.at(
                self.now_ns + index * 1_000_000, partial(self._packet, name, number, flow(number))
            )

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
            self._packet(name, number, flow(number))

        self.at(self.now_ns + self.rng.randrange(RTT_NS), round_trip)

    def _packet(self, name: str, number: int, key: FlowId) -> None:
        host = self.hosts[name]
        if police([host.datapath.policers[1]], key, PACKET, self.now_ns, self.rng):
            host.forwarded.append(self.now_ns)
            self.flow_bytes[number] += PACKET

    def _tick(self, host: Host) -> None:
        self.at(self.now_ns + TICK_NS, partial(self._tick, host))
        if host.alive:
            host.ticks += len(host.engine.tick(self.now_ns))
