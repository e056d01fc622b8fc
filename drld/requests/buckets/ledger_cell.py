"""A cell of the ledger (`ledger`) as it travels."""

from __future__ import annotations

from typing import NamedTuple

MAX_AGE_MS = 2**32 - 1
"""The largest age on the wire. An older cell looks younger, so its bucket looks fuller."""

FLOOR = 0
"""The entry of the floor. No limiter has the origin 0."""


class Cell(NamedTuple):
    """The tokens that one limiter admitted in one slot, as they travel."""

    origin: int
    slot: int
    tokens: int
    age_ms: int
    """The time since the cell's start, ms."""
