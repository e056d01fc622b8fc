"""The least use of the limit while limiters leave the count and return.

Three limiters have equal shares and a large demand. The unused part of the limit in the worst
second is the sum of five terms, in the order of their effect.

1. The rule (docs/conservative-rule.md). A limiter's share leaves before its demand, and its demand
   is back before its share. In a mesh one of three that has died leaves 2/3 of the limit to be
   divided by what all three want for 7 intervals; if all start anew, each has its own third, and
   divides it by three, for 4 intervals: 1/3 of the limit.
2. Order. Limiters tick at phases of their own, and daemons that are started together are ready at
   different times, so that it happens to one pair after the other.
3. Weights. Flows that have been held down take some round trips to fill a larger share. FPS
   claims at most 1.5 times the arrivals, so all weights fall and rise again. A falling limiter
   divides by the others' older weights: for 0.1 to 0.2 s local limits sum to 0.7, and then to 1.3.
4. TCP itself. Windows have shrunk to a packet or two; a flow that has lost all of its window waits
   0.2 s for its timer. In a limiter that is alone all three flows may.
5. A late host, by at most `LATE_S`, as later measurements are discarded: it prolongs the low use.

The first term depends on the fabric, and the next three have no formula. So a simulation in virtual
time passes the suite's traffic, TCP and UDP, through the daemon's own code (`python -m
tests.sim.chaos_fleet`). `LEAST` is the use in the worst second of 16 seeds or more (pushsum: 8;
each rhythm of flapping: 4 to 12). `tests/sim/test_chaos.py` checks it.

If two of three daemons of a tree are started at once, one start in thirteen uses less: the living
limiter may find another parent just as its lost parent comes back, and is then counted with both
for up to 1.5 s.

The bound on bytes is `fair`'s (docs/conservative-rule.md, "A bound on bytes"): from one detection
time after the last event on, a fleet forwards no more than (1 + margin) L t + B in any window.

Canaries add no term, as their bytes do not count as use. Sampling adds none, as windows begin at
samples, and each sample has its own time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drld.allocators.fair import DEPTH_ITEMS, LOAN_S, FairParameters
from drld.config.schema import GossipTable
from drld.gossip.fabrics import FABRICS
from drld.gossip.fabrics.base import Fabric
from drld.model import NS_PER_S, Quantity
from drld.units import BYTES

_LIMITERS = 3
_INTERVAL_NS: int = GossipTable().interval
STEADY = 0.95
"""TCP's least use of constant local limits in any second: 0.96 to 0.98 in virtual time."""
LATE_S = 0.05
"""Lateness in a second. If processes like the daemons waited longer, and a promise does not hold,
the measurement is discarded (`testbed.chaos.stage`)."""

CUT, FROZEN, FLAPPING, RESTARTED = "cut", "frozen", "flapping", "restarted"
KILLED = {1: "killed 1", 2: "killed 2", 3: "killed 3"}
CLOSED = {1: "closed 1", 2: "closed 2", 3: "closed 3"}
RESTARTED_CLOSED = "restarted closed"

LEAST: Mapping[str, Mapping[str, float]] = {
    # Paths between limiters are cut for longer than a detection time, both ways or one.
    CUT: {"mesh": 0.77, "tree": 0.57, "pushsum": 0.81},
    # A daemon stands still for longer.
    FROZEN: {"mesh": 0.87, "tree": 0.73, "pushsum": 0.83},
    # One limiter is cut off and back, again and again, at random or in the worst of rhythms.
    FLAPPING: {"mesh": 0.68, "tree": 0.42, "pushsum": 0.56},
    # So many daemons die, for longer, and their datapaths go on.
    KILLED[1]: {"mesh": 0.85, "tree": 0.66, "pushsum": 0.87},
    KILLED[2]: {"mesh": 0.77, "tree": 0.36, "pushsum": 0.79},
    KILLED[3]: {"mesh": 0.76, "tree": 0.48, "pushsum": 0.74},
    # One dies, and is back within 0.7 to 3 s.
    RESTARTED: {"mesh": 0.79, "tree": 0.54, "pushsum": 0.79},
    # So many die, for longer, and nothing passes their hosts meanwhile.
    CLOSED[1]: {"mesh": 0.53, "tree": 0.39, "pushsum": 0.56},
    CLOSED[2]: {"mesh": 0.18, "tree": 0.16, "pushsum": 0.31},
    CLOSED[3]: dict.fromkeys(("mesh", "tree", "pushsum"), 0.0),
    # One dies and is back soon, and nothing passes its host meanwhile.
    RESTARTED_CLOSED: {"mesh": 0.56, "tree": 0.39, "pushsum": 0.57},
}
"""The least part of the limit in use in any second, by event and fabric, if no host is late."""


def left_by(struck: int) -> float:
    """The others' part of the limit, if no packet passes this number of hosts."""
    return (_LIMITERS - struck) / _LIMITERS


_PASSING = {RESTARTED_CLOSED: left_by(1), **{what: left_by(n) for n, what in CLOSED.items()}}
"""The part of the limit that a late host delays, if not all."""


def promised(what: str, fabric: str) -> float:
    """The promised least part of the limit in use in any second."""
    return LEAST[what][fabric] - LATE_S * _PASSING.get(what, 1.0)


FAIR = "fair"
MARGIN = FairParameters().margin


def byte_bound(
    rate: float,
    burst: float,
    limiters: int,
    news_ns: int,
    *,
    margin: float = MARGIN,
    interval_ns: int = _INTERVAL_NS,
) -> float:
    """B of a fleet of `fair`, bytes, where paths are short and packets are of 1,500 bytes at most.

    Args:
        rate: the limit, bytes/s.
        burst: its depth, bytes.
        limiters: the size of the fleet.
        news_ns: the age of news (`Fabric.news_ns`).
        margin: that of the allocator.
        interval_ns: the limit's estimate interval.
    """
    interval_s = interval_ns / NS_PER_S
    news_s = news_ns / NS_PER_S + interval_s
    loans = max(2 * news_s * rate, LOAN_S * rate, burst)
    unsettled = (1 + margin) * rate * interval_s
    return 2 * burst + loans + limiters * DEPTH_ITEMS * BYTES.item + unsettled


def fabric(name: str, limiters: int) -> Fabric[Any]:
    """One that knows the detection time and the age of news of a fleet with default gossip."""
    names = {f"l{number}" for number in range(2, limiters + 1)}
    kind = FABRICS[name]
    membership = kind.make_membership("l1", names, GossipTable().branching, _INTERVAL_NS)
    return kind(membership=membership, limit_id=1, quantity=Quantity.WEIGHT)
