"""The water level: the rate that no flow exceeds while all of a limit is in use. Pure.

Max-min fairness (Bertsekas and Gallager, *Data Networks*, section 6.5.2): every flow gets what it
wants, or the level f, and f is as high as the limit allows. With the wants d of the flows that are
known, U of unlimited ones, and R more outside that count like unlimited ones, f solves

    sum of min(d, f) + (U + R) f = capacity

The left side rises with f from 0, so there is one solution, unless all that is wanted fits.
"""

from __future__ import annotations

from collections.abc import Sequence


def water_level(capacity: float, wants: Sequence[float], unlimited: float) -> float:
    """The level in the unit of `capacity`; the capacity itself where all that is wanted fits.

    Args:
        capacity: what there is to share, above 0.
        wants: what each flow wants that does not want all it can get.
        unlimited: how many flows (also a part of one) get the level itself.
    """
    left, sharing = capacity, len(wants) + unlimited
    for want in sorted(wants):
        if want * sharing >= left:
            return min(left / sharing, capacity)
        left -= want
        sharing -= 1
    return min(left / unlimited, capacity) if unlimited * capacity > left else capacity
