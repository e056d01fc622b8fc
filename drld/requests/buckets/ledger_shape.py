"""The constants of all ledgers of one policy: ticks, slots, and the life of a cell. Pure."""

from __future__ import annotations

import math
from functools import lru_cache

from drld.requests.buckets.policy import Policy

MS = 1_000_000
SLOTS = 2**16
"""The number of slots, on the wire and here. A cell lives for at most `_SLOTS_ALIVE` slots,
so no two living cells of an origin share a number."""
_SLOTS_ALIVE = SLOTS // 4
"""The most slots of a cell's life; the other numbers are for cells that are under way."""


class Shape:
    """The constants of all rows of one policy; times in ticks of the reduced policy."""

    __slots__ = (
        "capacity", "depth", "first", "horizon", "interval_ns", "life", "margin_ns", "origin",
        "per", "per_ms", "policy", "rate", "slot_ns",
    )  # fmt: skip

    def __init__(self, policy: Policy, origin: int, interval_ns: int, margin_ns: int) -> None:
        # As few ticks as do: then times of most policies fit 64 bits for long.
        common = math.gcd(policy.rate, policy.per_ns)
        self.policy, self.origin = policy, origin
        self.interval_ns, self.margin_ns = interval_ns, margin_ns
        self.rate = policy.rate // common
        """The ticks of a nanosecond."""
        self.per = policy.per_ns // common
        """The ticks of a token."""
        self.per_ms = MS * self.rate
        self.capacity = policy.capacity
        self.depth = policy.capacity * self.per
        self.life = self.depth + margin_ns * self.rate
        """The age at which an unknown cell is refused, ticks."""
        self.horizon = self.life + margin_ns * self.rate
        """The age at which a known cell is folded into the floor, ticks."""
        life_ns = -(-self.horizon // self.rate)
        self.slot_ns = max(interval_ns, life_ns // _SLOTS_ALIVE)
        self.first = origin * SLOTS
        """The id of the origin's cell of slot 0."""


@lru_cache(maxsize=1024)
def shape_of(policy: Policy, origin: int, interval_ns: int, margin_ns: int) -> Shape:
    """Return the shape that all keys of a policy share; the size bounds the policies in use."""
    return Shape(policy, origin, interval_ns, margin_ns)
