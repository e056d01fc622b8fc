"""The report on the busiest keys of a limit: GET /v1/limits/NAME/keys (`drld.requests.busy_keys`).

It imports nothing but typing: drlctl starts fast.
"""

from __future__ import annotations

from typing import TypedDict


class BusyKey(TypedDict):
    """One key; amounts are requests, or bytes."""

    key: str
    """Its hash, 16 hexadecimal digits: the same at all limiters of the fleet."""
    text: str | None
    """Its values; None: it is not among the last that came to this limiter."""
    used: float
    """In use: admitted anywhere, as far as this limiter knows, and not refilled yet."""
    burst: float


class BusyReport(TypedDict):
    """The keys of one limit at this limiter."""

    limit: str
    unit: str
    bucket: str
    keys: int
    """With a bucket here."""
    max_keys: int
    peers: int
    """In contact: those that tell this limiter what they admit, and are told."""
    busiest: list[BusyKey]
    """The keys with most in use; of more than 2,048 keys, those that came here last."""
