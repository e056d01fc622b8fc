"""The promises of the suite: the least use of the limit, and the bound on bytes.

The least use of the limit while limiters leave the count and return is the sum of five terms
(docs/chaos.md, "What stays in use"). The first depends on the fabric, and the next three have no
formula. So a simulation in virtual time passes the suite's traffic through the daemon's own code
(`python -m tests.sim.chaos_fleet`). `LEAST` is the use in the worst second of its seeds, and
`tests/sim/test_chaos.py` checks it. The fifth term, a late host, is at most `LATE_S`, as later
measurements are discarded.

Canaries add no term, as their bytes do not count as use. Sampling adds none, as windows begin at
samples, and each sample has its own time.

The bound on bytes is `fair`'s (docs/conservative-rule.md, "A bound on bytes"). It holds from one
detection time after the last event on: in any window, a fleet forwards no more than (1 + margin) L
t + B.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drld.allocators.fair import FairParameters
from drld.allocators.fair_bucket import DEPTH_ITEMS, LOAN_S
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
FROZEN_CLOSED = "frozen closed"
KILLED = {1: "killed 1", 2: "killed 2", 3: "killed 3"}
CLOSED = {1: "closed 1", 2: "closed 2", 3: "closed 3"}
RESTARTED_CLOSED = "restarted closed"

LEAST: Mapping[str, Mapping[str, float]] = {
    # Paths between limiters are cut for longer than a detection time, both ways or one.
    CUT: {"mesh": 0.77, "tree": 0.57, "pushsum": 0.81},
    # A daemon stands still for longer.
    FROZEN: {"mesh": 0.85, "tree": 0.64, "pushsum": 0.83},
    # One stands still for longer, and nothing passes its host meanwhile.
    FROZEN_CLOSED: {"mesh": 0.56, "tree": 0.39, "pushsum": 0.16},
    # One limiter is cut off and back, again and again, at random or in the worst of rhythms.
    FLAPPING: {"mesh": 0.68, "tree": 0.42, "pushsum": 0.55},
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


_PASSING = {
    **dict.fromkeys((FROZEN_CLOSED, RESTARTED_CLOSED), left_by(1)),
    **{what: left_by(n) for n, what in CLOSED.items()},
}
"""The part of the limit that a late host delays, if not all."""


def promised(what: str, fabric: str) -> float:
    """The promised least part of the limit in use in any second."""
    return LEAST[what][fabric] - LATE_S * _PASSING.get(what, 1.0)


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
    """A fabric with the detection time and the age of news of a fleet with default gossip."""
    names = {f"l{number}" for number in range(2, limiters + 1)}
    kind = FABRICS[name]
    membership = kind.make_membership("l1", names, GossipTable().branching, _INTERVAL_NS)
    return kind(membership=membership, limit_id=1, quantity=Quantity.WEIGHT)
