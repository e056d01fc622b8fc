"""The burst of a limit: its bounds, and its automatic size.

Policers are hard to size (Flach et al., "An Internet-Wide Analysis of Traffic Policing", SIGCOMM
2016). A policer drops what exceeds its bucket, so the bucket must hold a TCP flow's swings: a lone
Reno or CUBIC flow reaches the rate only with two to six bandwidth-delay products. A deeper bucket
passes longer bursts above the rate. The automatic burst is a quarter of a second of the rate: two
and a half bandwidth-delay products of a path of 100 ms.
"""

from __future__ import annotations

from drld.model import NS_PER_S

MIN_BURST, MAX_BURST = 1500, 4 * 10**9
"""Bounds of a burst, bytes: one full-size packet, and the datapaths' largest bucket."""
AUTOMATIC_NS = NS_PER_S // 4
"""Time in which the rate fills an automatic burst, ns."""


def automatic_burst(rate: int) -> int:
    """`AUTOMATIC_NS` of the rate (bytes/s), bytes, from `MIN_BURST` to `MAX_BURST`.

    The floor applies below 48 kbit/s, the ceiling above 128 Gbit/s.
    """
    return min(max(_needed(rate), MIN_BURST), MAX_BURST)


def is_shallow(burst: int, rate: int) -> bool:
    """Whether a burst (bytes) is below `AUTOMATIC_NS` of the rate, if a burst may be that large."""
    return burst < _needed(rate) <= MAX_BURST


def _needed(rate: int) -> int:
    return rate * AUTOMATIC_NS // NS_PER_S
