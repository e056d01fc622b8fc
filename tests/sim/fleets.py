"""What tests ask of a fleet that only gossips (`testbed.fabrics.fleet`)."""

import math
import statistics
from collections.abc import Sequence
from random import Random

from drld.gossip.fabrics.pushsum import PushSum
from testbed.fabrics.fleet import Fleet


def error(made: Fleet) -> float:
    """Root mean square over those that live of the error of the total that each believes in."""
    total = made.total
    return math.sqrt(statistics.fmean((b / total - 1) ** 2 for b in made.believed().values()))


def worst_error(made: Fleet) -> float:
    """The largest."""
    return max(abs(b / made.total - 1) for b in made.believed().values())


def restless_error(made: Fleet, intervals: int, seed: int) -> float:
    """Every demand walks at random, 3 % an interval; the root mean square error over time."""
    rng = Random(seed)
    squares = []
    for _ in range(intervals):
        for name in made.names:
            made.demand[name] *= math.exp(rng.gauss(0, 0.03))
        made.run(1)
        squares.append(error(made) ** 2)
    return math.sqrt(statistics.fmean(squares))


def reload(made: Fleet, name: str, members: Sequence[str]) -> None:
    """Tell a limiter that these are the fleet from now on."""
    fabric = made.fabrics[name]
    peers = [member for member in members if member != name]
    fabric.membership.set_peers(peers)
    fabric.set_peers()


def push_sums(made: Fleet) -> list[PushSum]:
    """The fabrics, of a fleet of push-sum."""
    return [fabric for fabric in made.fabrics.values() if isinstance(fabric, PushSum)]
