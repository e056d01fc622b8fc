"""The automatic burst of a limit.

Policers are hard to size (Flach et al., "An Internet-Wide Analysis of Traffic Policing", SIGCOMM
2016). A policer drops the packets that exceed its bucket, so the bucket must hold a TCP flow's
swings. A lone Reno or CUBIC flow reaches the rate only with two to six bandwidth-delay products. A
deeper bucket passes longer bursts above the rate. The automatic burst is a quarter of a second of
the rate: two and a half bandwidth-delay products of a path of 100 ms.
"""

from __future__ import annotations

from drld.model import NS_PER_S
from drld.units import Unit

AUTOMATIC_NS = NS_PER_S // 4
"""Time in which the rate fills an automatic burst, ns."""


def automatic_burst(rate: int, unit: Unit) -> int:
    """`AUTOMATIC_NS` of the rate (tokens/s), tokens, within the unit's bounds of a burst.

    For bytes, the floor applies below 48 kbit/s, the ceiling above 128 Gbit/s.
    """
    return min(max(_needed(rate), unit.min_burst), unit.max_burst)


def is_shallow(burst: int, rate: int, unit: Unit) -> bool:
    """Whether a burst is below `AUTOMATIC_NS` of the rate, if a burst may be that large."""
    return burst < _needed(rate) <= unit.max_burst


def _needed(rate: int) -> int:
    return rate * AUTOMATIC_NS // NS_PER_S
