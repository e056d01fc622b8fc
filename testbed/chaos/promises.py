"""How much of the limit stays in use while limiters are counted out and in again.

Three limiters have equal shares and want much. What is missing in the worst second is the sum of
five terms, in the order in which they come.

1. The rule (docs/conservative-rule.md). A limiter's share leaves before its demand, and its demand
   is back before its share. In a mesh one of three that has died leaves 2/3 of the limit to be
   divided by what all three want for 7 intervals; if all start anew, each has its own third, and
   divides it by three, for 4 intervals: 1/3 of the limit.
2. Order. Limiters tick at phases of their own, and daemons that are started together are ready at
   different times, so that it happens to one pair after the other.
3. Weights. Flows that have been held down fill what is given back within some round trips; FPS
   claims no more than 1.5 times what arrives, so all weights fall and rise again. Who falls divides
   by what the others wanted a tick ago: for 0.1 to 0.2 s local limits sum to 0.7, and then to 1.3.
4. TCP itself. Windows have shrunk to a packet or two; a flow that has lost all of its window waits
   0.2 s for its timer. In a limiter that is alone all three flows may.
5. A host that is late, by no more than what a measurement is kept for (`LATE_S`): what is low is
   low for so much longer.

How long the first lasts depends on the fabric, and the next three follow from no formula. So the
suite's own traffic, TCP and UDP, passes the daemon's own code in virtual time, where no host is
late (`python -m tests.sim.chaos_fleet`): `LEAST` has what is used there in the worst second of 16
seeds, or more (pushsum: of 8; each rhythm of flapping: 4 to 12). `tests/sim/test_chaos.py` sees to
it that it stays so.

Where two of three daemons of a tree are started at once, one start in thirteen uses less: the one
that lives may find another parent at the very moment at which its lost one is back, and is counted
with both for up to 1.5 s.

The bound on bytes is `fair`'s (docs/conservative-rule.md, "A bound on bytes"): from one detection
time after the last event on, a fleet forwards no more than (1 + margin) L t + B in any window.

No terms are: canaries, whose bytes are not counted as use; and sampling, as windows begin at
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
"""What TCP makes of local limits that stay as they are, in any second: 0.96 to 0.98 in virtual
time."""
LATE_S = 0.05
"""In a second. Where processes like the daemons were kept waiting for longer, and a promise does
not hold, nothing has been measured (`testbed.chaos.stage`)."""

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
"""By what happens and by fabric, the least part of the limit that is used in any second, if no host
is late."""


def left_by(struck: int) -> float:
    """What the others have, if nothing passes the hosts of so many."""
    return (_LIMITERS - struck) / _LIMITERS


_PASSING = {RESTARTED_CLOSED: left_by(1), **{what: left_by(n) for n, what in CLOSED.items()}}
"""The part of the limit that a host which is late holds up, where it is not all."""


def promised(what: str, fabric: str) -> float:
    """The least part of the limit that is used in any second."""
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
