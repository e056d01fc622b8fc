"""A whole fleet's fabrics on the simulated network, each with ticks at a phase of its own.

A tick does the same as the daemon's: receive the updates that have arrived, get the view, publish
or send a heartbeat. Only `Membership.drained` is left out. An update counts from the time of its
tick, and not from the tick before. So a death is known up to an interval later than in daemons.
Updates cross the network as values. Other tests check that the wire carries them to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from drld.gossip.fabrics import FABRICS
from drld.gossip.fabrics.base import Fabric
from drld.gossip.fabrics.pushsum import settling_intervals
from drld.gossip.fabrics.sliding_min import SlidingMin
from drld.gossip.fabrics.tree_membership import TreeMembership
from drld.model import HEARTBEAT, GlobalView, Quantity, Update
from testbed.sim.lives import Lives, Sealed
from testbed.sim.network import MS, Conditions, Network

INTERVAL_NS = 50 * MS
BRANCHING = 3


class Fleet:
    """Limiters of one limit: l0, l1, ..."""

    def __init__(
        self,
        fabric: str,
        size: int,
        seed: int,
        conditions: Conditions | None = None,
    ) -> None:
        self.names = [f"l{index}" for index in range(size)]
        self.network: Network[Sealed[Update]] = Network(seed, conditions or Conditions())
        self.demand = dict.fromkeys(self.names, 0.0)
        self.views: dict[str, GlobalView] = {}
        self.dead: set[str] = set()
        self.interval = 0
        """The number of passed intervals."""
        self._rng = Random(seed)
        self._kind = FABRICS[fabric]
        self.phase_ns = {name: self._rng.randrange(INTERVAL_NS) for name in self.names}
        """Each limiter's tick within an interval, ns."""
        self.fabrics: dict[str, Fabric[Any]] = {}
        self._lasting: dict[str, SlidingMin] = {}
        self._in_force: dict[str, float] = {}
        """The part of the limit, in shares, that each limiter counted on at its last tick."""
        self._lives: dict[str, Lives[Update]] = {name: Lives() for name in self.names}
        for name in self.names:
            self._begin(name)

    def restart(self, name: str) -> None:
        """Begin a new life of a limiter, without knowledge."""
        self._lives[name].restart()
        self._begin(name)

    def _begin(self, name: str) -> None:
        membership = self._kind.make_membership(
            name, [peer for peer in self.names if peer != name], BRANCHING, INTERVAL_NS
        )
        self.fabrics[name] = self._kind(membership=membership, limit_id=1, quantity=Quantity.RATE)
        self._lasting[name] = SlidingMin(membership.rise_ns)
        self._lasting[name].update(1, self.interval * INTERVAL_NS)

    def run(self, intervals: int) -> None:
        """Let every limiter tick this many times, in the order of their phases."""
        for _ in range(intervals):
            for name in sorted(self.names, key=lambda name: self.phase_ns[name]):
                self._tick(name, self.interval * INTERVAL_NS + self.phase_ns[name])
            self.interval += 1

    @property
    def counted_intervals(self) -> int:
        """Intervals for which a dead limiter's demand still counts in this fabric."""
        membership = self.fabrics[self.names[0]].membership
        if isinstance(membership, TreeMembership):
            return membership.counted_ns // INTERVAL_NS
        return membership.timeouts.silence_ns // INTERVAL_NS

    @property
    def alive(self) -> list[str]:
        """The live limiters."""
        return [name for name in self.names if name not in self.dead]

    @property
    def total(self) -> float:
        """The demand of the live limiters."""
        return sum(self.demand[name] for name in self.alive)

    def believed(self, names: list[str] | None = None) -> Mapping[str, float]:
        """The total that each limiter believed at its last tick."""
        return {
            name: self.views[name].remote + self.demand[name]
            for name in (self.alive if names is None else names)
        }

    @property
    def allotted(self) -> float:
        """The part of the limit that the live limiters take.

        Each takes its part of the total that it believes, of the shares in force (`drld.limiter`).
        """
        taken = 0.0
        for name, believed in self.believed().items():
            taken += self._in_force[name] * self.demand[name] / believed if believed else 0.0
        return taken / len(self.names)

    def connected(self, names: Sequence[str] | None = None) -> set[int]:
        """The numbers of peers that limiters took for connected at their last ticks."""
        views = [self.views[name] for name in (self.alive if names is None else names)]
        return {len(view.connected) + view.unnamed for view in views}

    def _tick(self, name: str, now_ns: int) -> None:
        arrived = list(self.network.receive(name, now_ns))
        if name in self.dead:
            return
        fabric = self.fabrics[name]
        membership = fabric.membership
        lives = self._lives[name]
        for source, sealed in arrived:
            if source not in membership.peers:
                continue
            opened = lives.open(source, sealed)
            met = () if opened.met is None else membership.on_session(source, now_ns)
            if fabric.limit_id in met:
                fabric.on_session(source)
            if opened.answer is not None:
                self.network.send(name, source, opened.answer, now_ns)
            update = opened.content
            if update is None:
                continue
            if update.limit_id == HEARTBEAT:
                membership.receive(source, update, now_ns)
            else:
                fabric.receive(source, update, now_ns)
        view = self.views[name] = fabric.view(now_ns)
        counted = 1 + len(view.connected) + view.unnamed
        self._in_force[name] = self._lasting[name].update(counted, now_ns)
        targets = membership.targets(self._rng)
        told = dict(fabric.publish(self.demand[name], targets, now_ns))
        for peer in targets:
            update = told.get(peer) or membership.heartbeat(peer, now_ns)
            self.network.send(name, peer, lives.seal(peer, update), now_ns)


def fleet(fabric: str, size: int, seed: int, conditions: Conditions | None = None) -> Fleet:
    """A fleet whose limiters demand 0.5 to 1.5 MB/s each."""
    made = Fleet(fabric, size, seed, conditions)
    rng = Random(seed)
    for name in made.names:
        made.demand[name] = 1e6 * (0.5 + rng.random())
    return made


def cycle(fabric: str, size: int) -> int:
    """Intervals until a limiter has sent to all its peers."""
    return math.ceil((size - 1) / min(BRANCHING, size - 1)) if fabric == "pushsum" else 1


def settling(fabric: str, size: int) -> int:
    """Intervals that a fabric takes to agree."""
    if fabric == "pushsum":
        return settling_intervals(size, min(BRANCHING, size - 1))
    return 3 if fabric == "mesh" else 3 + 3 * size.bit_length()


def start_up(fabric: str, size: int) -> int:
    """Intervals until all limiters of a fleet that starts at once know the total."""
    return 2 * cycle(fabric, size) + settling(fabric, size) + 2
