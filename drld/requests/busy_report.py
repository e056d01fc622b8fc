"""The report on the busiest keys of a limit: GET /v1/limits/NAME/keys (`drld.requests.busy_keys`).

It imports only typing, so that drlctl starts fast.
"""

from __future__ import annotations

from typing import TypedDict


class BusyKey(TypedDict):
    """One key; amounts are requests, or bytes."""

    key: str
    """The hash of the key, 16 hexadecimal digits: the same at all limiters of the fleet."""
    text: str | None
    """The key's values; None: the key is not among the recent ones of this limiter."""
    used: float
    """The tokens in use: admitted at any limiter, as far as this limiter knows, and not refilled
    yet."""
    burst: float


class BusyReport(TypedDict):
    """The keys of one limit at this limiter."""

    limit: str
    unit: str
    bucket: str
    keys: int
    """The number of keys with a bucket here."""
    max_keys: int
    peers: int
    """The number of peers in contact: they exchange news of keys with this limiter."""
    busiest: list[BusyKey]
    """The keys with most tokens in use; of more than 2,048 keys, recent ones alone."""
