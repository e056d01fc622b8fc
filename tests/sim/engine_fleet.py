"""Fleets whose daemons die, freeze and reload: what their datapaths let through together.

Limiters are real `Engine`s in virtual time, each at a phase of its own, on the simulated network.

    made = Fleet("mesh", [3, 0, 9], seed=1)     # the flows of each limiter
    made.run(100)                               # intervals
    made.cut({("l0", "l1"), ("l1", "l0")})
    made.run(10)
    made.in_force()                             # sum of the local limits over the limit
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from drld.capture.plane import packets
from drld.engine import Engine
from drld.spec import LimiterSpec, ProbeSpec
from testbed.sim.mailbox import Datagram, Mailbox
from testbed.sim.network import MS, Conditions, Network
from testbed.tcp.clock import Clock

from ..factories import TICK_NS, gossip_spec, limit_spec, limiter_spec
from .fluid import LIMIT, FluidDatapath

LOSSES_IN_A_ROW = 9
"""What is lost beyond is not loss but a link that is cut, and its end an event."""


class Node:
    """A limiter: a datapath that stays, and a daemon that comes and goes."""

    def __init__(self, name: str, flows: int, fleet: Fleet) -> None:
        self.name = name
        self.datapath = FluidDatapath()
        self.flows = self.datapath.flows = flows
        self._fleet = fleet
        self.mailbox = Mailbox(name, fleet.clock, fleet.network)
        self.alive = False
        self.frozen_until_ns = 0
        self._life = 0

    def start(self, began_ns: int) -> None:
        """A new daemon, which knows nothing, and finds nothing in its socket."""
        self.alive = True
        self.frozen_until_ns = 0
        self._life += 1
        fleet = self._fleet
        for _ in fleet.network.receive(self.name, fleet.clock.now_ns):
            pass
        self.mailbox.restart()
        spec = self._spec()
        self.mailbox.update_peers({peer.name: peer.address for peer in spec.peers})
        self.engine = Engine(spec, [packets(self.datapath)], self.mailbox, fleet.rng)
        self.engine.start(began_ns)
        fleet.clock.at(self.engine.next_due_ns(), self._tick, self._life)

    def _spec(self) -> LimiterSpec:
        fleet = self._fleet
        peers = [name for name in fleet.members if name != self.name]
        return limiter_spec(
            fleet.limit, peers=peers, name=self.name, gossip=fleet.gossip, probes=fleet.probes
        )

    def reload(self) -> None:
        """The daemon, if it lives, reads its file: the members of the fleet as they are now."""
        now_ns = self._fleet.clock.now_ns
        if self.alive and now_ns < self.frozen_until_ns:
            self._fleet.clock.at(self.frozen_until_ns, self._reload_later, self._life)
        elif self.alive:
            self.engine.reconfigure(self._spec(), now_ns, reattach=False)

    def _reload_later(self, life: int) -> None:
        if life == self._life:
            self.reload()

    def leave(self) -> None:
        """The daemon ends in order, and nothing passes here any more."""
        if self.alive:
            self.engine.stop()
        self.kill()
        self.datapath.flows = 0

    def kill(self) -> None:
        """The daemon dies."""
        self.alive = False
        self._life += 1
        self._fleet.clock.at(self.datapath.falls_back_ns, self._note)

    def freeze(self, for_ns: int) -> None:
        """The daemon does nothing for so long, then goes on where it was."""
        self.frozen_until_ns = self._fleet.clock.now_ns + for_ns
        self._fleet.clock.at(self.datapath.falls_back_ns, self._note)

    def _note(self, _: Any) -> None:
        self._fleet.note()

    def _tick(self, life: int) -> None:
        if life != self._life:
            return
        clock = self._fleet.clock
        if clock.now_ns < self.frozen_until_ns:
            clock.at(self.frozen_until_ns, self._tick, life)
            return
        self.engine.tick(clock.now_ns)
        self._fleet.note()
        clock.at(self.engine.next_due_ns(), self._tick, life)


class LossyNetwork(Network[Datagram]):
    """Loses no more than so many in a row on a path."""

    def __init__(self, seed: int, conditions: Conditions) -> None:
        super().__init__(seed, conditions)
        self._lost_in_a_row: dict[tuple[str, str], int] = {}
        self._fate = Random(f"{seed}/fate")
        self.loss = 0.0

    def send(self, source: str, destination: str, datagram: Datagram, now_ns: int) -> None:
        """See `Network`."""
        path = source, destination
        row = self._lost_in_a_row.get(path, 0)
        if row < LOSSES_IN_A_ROW and self._fate.random() < self.loss:
            self._lost_in_a_row[path] = row + 1
        else:
            self._lost_in_a_row[path] = 0
            super().send(source, destination, datagram, now_ns)


class Fleet:
    """Limiters l0, l1, ... of one limit."""

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
        """`flows` at each limiter; none is idle.

        `delay_ns` is that of each path, one way; up to 20 ms are added.
        """
        self.names = [f"l{number}" for number in range(len(flows))]
        self.members = list(self.names)
        """Those that have not left."""
        self.limit = limit_spec(allocator, rate=LIMIT, **limit)
        self.gossip = gossip_spec(fabric)
        self.probes = ProbeSpec()
        self.rng = Random(seed)
        self.clock = Clock(1000 * TICK_NS)
        self.network = LossyNetwork(seed, Conditions(delay_ns=delay_ns, jitter_ns=20 * MS))
        self.network.loss = loss
        self.most = self.least = 0.0
        """The largest and the smallest sum since `watch`."""
        self.look: Callable[[], None] | None = None
        """Called when something is enforced that was not before."""
        self.nodes = {
            name: Node(name, count, self) for name, count in zip(self.names, flows, strict=True)
        }
        for node in self.nodes.values():
            node.start(self.clock.now_ns - self.rng.randrange(TICK_NS))

    def run(self, intervals: float) -> None:
        """Let time pass."""
        self.clock.run(self.clock.now_ns + round(intervals * TICK_NS))

    def in_force(self) -> float:
        """Sum of the local limits in force, dead limiters' included, over the limit."""
        now_ns = self.clock.now_ns
        return math.fsum(node.datapath.passes(now_ns) for node in self.nodes.values()) / LIMIT

    def note(self) -> None:
        """Something is enforced that was not before."""
        total = self.in_force()
        self.most = max(self.most, total)
        self.least = min(self.least, total)
        if self.look is not None:
            self.look()

    def watch(self) -> None:
        """Begin to look for the largest sum, and the smallest."""
        self.most = self.least = self.in_force()

    def passes(self, name: str) -> float:
        """The local limit of one limiter, over the limit."""
        return self.nodes[name].datapath.passes(self.clock.now_ns) / LIMIT

    def believed(self, name: str) -> float:
        """The flow weight of all, as one limiter has it."""
        last = self.nodes[name].engine.limits[1].last
        assert last is not None
        return last.view.remote + last.allocation.value

    @property
    def detection_intervals(self) -> int:
        """The detection time."""
        entries = self.nodes[self.members[0]].engine.limits
        return -(-entries[1].limiter.fabric.detection_ns // TICK_NS)

    def cut(self, paths: Iterable[tuple[str, str]]) -> None:
        """Let nothing through on these paths, and on no others."""
        self.network.cut = set(paths)
