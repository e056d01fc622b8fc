"""How much of the limit stays in use while limiters are counted out and in again.

It is what the conservative rule gives (docs/conservative-rule.md), for three limiters with equal
shares that all want much. A limiter's share leaves before its demand, and its demand is back before
its share: in between too little is allotted. In a mesh, for one of three, that is 5/9 of the limit
for 7 intervals. How long it lasts, and what a tree or pushsum does, follows from no short formula:
`tests/sim/test_chaos.py` has the same things happen to engines in virtual time, and compares.
"""

from __future__ import annotations

from collections.abc import Mapping

_LIMITERS = 3
TCP = 0.95
"""What TCP makes of limits that fall and rise, at least."""

CUT: Mapping[str, float] = {"mesh": 0.83, "tree": 0.71, "pushsum": 0.91}
"""By fabric, the least part of the limit that is allotted in any second, if paths between limiters
are cut for longer than a detection time, both ways or one, or a daemon stands still."""
FLAPPING: Mapping[str, float] = {"mesh": 0.74, "tree": 0.47, "pushsum": 0.84}
"""If one limiter is cut off and back, again and again, in the worst of the rhythms tried."""
KILLED: Mapping[str, float] = {"mesh": 0.86, "tree": 0.57, "pushsum": 0.86}
"""If one daemon, most or all die, for longer than a detection time, and their datapaths go on."""
CLOSED: Mapping[int, Mapping[str, float]] = {
    1: {"mesh": 0.58, "tree": 0.5, "pushsum": 0.58},
    2: {"mesh": 0.25, "tree": 0.2, "pushsum": 0.32},
    3: dict.fromkeys(("mesh", "tree", "pushsum"), 0.0),
}
"""If so many die, and nothing passes their hosts meanwhile."""


def left_by(struck: int) -> float:
    """What the others have, if nothing passes the hosts of so many."""
    return (_LIMITERS - struck) / _LIMITERS
