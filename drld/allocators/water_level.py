"""The water level: the rate that no flow exceeds while all of a limit is in use. Pure.

Max-min fairness (Bertsekas and Gallager, *Data Networks*, section 6.5.2): every flow gets the rate
that it wants, or the level f if that is lower. The level is as high as the limit allows. With the
wanted rates d of known flows, U unlimited flows here, and R more elsewhere, f solves

    sum of min(d, f) + (U + R) f = capacity

The left side rises with f from 0, so there is one solution, unless the capacity covers all wants.
"""

from __future__ import annotations

from collections.abc import Sequence


def water_level(capacity: float, wants: Sequence[float], unlimited: float) -> float:
    """The level in the unit of `capacity`; the capacity itself if it covers all wants.

    Args:
        capacity: the rate to share, above 0.
        wants: the wanted rate of each flow that is not unlimited.
        unlimited: number of unlimited flows, U + R; may be a fraction.
    """
    left, sharing = capacity, len(wants) + unlimited
    for want in sorted(wants):
        if want * sharing > left:
            return min(left / sharing, capacity)
        left -= want
        sharing -= 1
    return min(left / unlimited, capacity) if unlimited * capacity > left else capacity
