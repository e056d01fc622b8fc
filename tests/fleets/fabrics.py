"""Fabrics of one limit without engines: bare, and in virtual time (`testbed.fabrics.fleet`).

The updates between bare fabrics wait until a test delivers, repeats or loses them:

    made = BareFleet("tree", 3)
    made.demand["l0"] = 5.0
    made.tick("l0")
    made.deliver(("l0", "l1"))
    made.rounds(20)          # without faults
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable
from random import Random
from typing import Any

from drld.gossip.fabrics import FABRICS
from drld.gossip.fabrics.base import Fabric
from drld.gossip.fabrics.pushsum import PushSum
from drld.gossip.wire.update_codec import to_float32
from drld.model import HEARTBEAT, Quantity, Update
from testbed.fabrics.fleet import Fleet

from .. import wire
from ..factories import TICK_NS


def fabric(kind: str, name: str, names: Iterable[str], branching: int = 3) -> Fabric[Any]:
    """The fabric of a limiter in a fleet of these names, for limit 1."""
    made = FABRICS[kind]
    peers = [peer for peer in names if peer != name]
    membership = made.make_membership(name, peers, branching, TICK_NS)
    return made(membership=membership, limit_id=1, quantity=Quantity.RATE)


def set_members(fabric: Fabric[Any], names: Iterable[str]) -> None:
    """Tell a fabric that these limiters are the fleet, as a reload does."""
    known = fabric.membership
    known.set_peers([name for name in names if name != known.name])
    fabric.set_peers()


class BareFleet:
    """Limiters l0, l1, ... and the updates under way between them."""

    def __init__(self, kind: str, size: int, branching: int = 3) -> None:
        self.names = [f"l{index}" for index in range(size)]
        self.demand = dict.fromkeys(self.names, 0.0)
        self.now_ns = 0
        self.rng = Random(size)
        self.fabrics = {name: fabric(kind, name, self.names, branching) for name in self.names}
        self.links: dict[tuple[str, str], list[Any]] = {
            (a, b): [] for a in self.names for b in self.names if a != b
        }
        """Updates under way, by sender and receiver, as they come off the wire."""

    @property
    def waiting(self) -> list[tuple[str, str]]:
        """The links with updates under way."""
        return [link for link, updates in self.links.items() if updates]

    def tick(self, name: str) -> None:
        """Have a limiter look at its view and tell its peers."""
        fabric = self.fabrics[name]
        fabric.view(self.now_ns)
        targets = fabric.membership.targets(self.rng)
        told = dict(fabric.publish(self.demand[name], targets, self.now_ns))
        for peer in targets:
            update = told.get(peer) or fabric.membership.heartbeat(peer, self.now_ns)
            self.links[name, peer].append(wire.carried(update))

    def deliver(self, link: tuple[str, str], place: int = 0, *, again: bool = False) -> None:
        """Deliver an update, which overtakes those before it; `again`: and keep it under way."""
        waiting = self.links[link]
        update = waiting[place] if again else waiting.pop(place)
        self.receive(*link, update)

    def receive(self, sender: str, receiver: str, update: Update) -> None:
        """Hand an update to its receiver."""
        fabric = self.fabrics[receiver]
        of = fabric.membership if update.limit_id == HEARTBEAT else fabric
        of.receive(sender, update, self.now_ns)

    def rounds(self, count: int, cut: Collection[tuple[str, str]] = ()) -> None:
        """Have all limiters tick `count` times, and all updates arrive but those of cut links."""
        for _ in range(count):
            for name in self.names:
                self.tick(name)
            for link in self.links:
                if link in cut:
                    self.links[link].clear()
                while self.links[link]:
                    self.deliver(link)
            self.now_ns += TICK_NS

    def believed(self) -> list[float]:
        """The total that each limiter believes in."""
        return [
            fabric.view(self.now_ns).remote + to_float32(self.demand[name])
            for name, fabric in self.fabrics.items()
        ]


def error(made: Fleet) -> float:
    """Root mean square error of the totals that the living limiters believe in."""
    total = made.total
    return math.sqrt(statistics.fmean((b / total - 1) ** 2 for b in made.believed().values()))


def worst_error(made: Fleet) -> float:
    """The largest of these errors."""
    return max(abs(b / made.total - 1) for b in made.believed().values())


def restless_error(made: Fleet, intervals: int, seed: int) -> float:
    """Root mean square error over time, while each demand walks at random, 3 % an interval."""
    rng = Random(seed)
    squares = []
    for _ in range(intervals):
        for name in made.names:
            made.demand[name] *= math.exp(rng.gauss(0, 0.03))
        made.run(1)
        squares.append(error(made) ** 2)
    return math.sqrt(statistics.fmean(squares))


def push_sums(made: Fleet) -> list[PushSum]:
    """The fabrics of a fleet of push-sum."""
    return [fabric for fabric in made.fabrics.values() if isinstance(fabric, PushSum)]
