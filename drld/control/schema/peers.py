"""The other limiters of the fleet."""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict

Verdict: TypeAlias = Literal["alive", "suspect", "dead", "left", "unknown"]


class PeerReport(TypedDict):
    """Another limiter of the fleet: GET /v1/peers (a list)."""

    name: str
    address: str
    connected: bool
    verdict: Verdict
    """The verdict of probes."""
    age_s: float | None
    """Time since the last update; None where there was none."""
    received: int
    lost: int
    late: int
    rejected: int
