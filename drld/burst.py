"""The burst of a limit: its bounds, and its size where the operator leaves it to drld.

Policers are hard to size (Flach et al., "An Internet-Wide Analysis of Traffic Policing", SIGCOMM
2016). A policer drops what exceeds its bucket, so the bucket must hold a TCP flow's swings: a lone
Reno or CUBIC flow reaches the rate only with two to six bandwidth-delay products. A deeper bucket
passes longer bursts above the rate. The automatic burst is a quarter of a second of the rate, which
is two and a half bandwidth-delay products of a path of 100 ms.
"""

from __future__ import annotations

from drld.model import NS_PER_S

MIN_BURST, MAX_BURST = 1500, 4 * 10**9
"""Bytes: one full-size packet, and the most that the datapaths calculate with."""
AUTOMATIC_NS = NS_PER_S // 4
"""Time for which the rate fills an automatic burst."""


def automatic_burst(rate: int) -> int:
    """Bytes of `AUTOMATIC_NS` of the rate (bytes/s), within `MIN_BURST` and `MAX_BURST`.

    The floor counts below 48 kbit/s, the ceiling above 128 Gbit/s.
    """
    return min(max(_needed(rate), MIN_BURST), MAX_BURST)


def is_shallow(burst: int, rate: int) -> bool:
    """Whether a burst (bytes) is below `AUTOMATIC_NS` of the rate, and could be that much."""
    return burst < _needed(rate) <= MAX_BURST


def _needed(rate: int) -> int:
    return rate * AUTOMATIC_NS // NS_PER_S
