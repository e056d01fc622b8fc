"""The requests of a slice: keys by a distribution, costs 1 to 5, a twentieth of them to be refused.

Every key has the same policy, and a bucket that no run empties. `EMPTIED` keys have a debt before,
`DEBT`, which no run pays back; every twentieth request is of one of them. So the part that is
refused is the same for each contestant, however fast it is.
"""

from __future__ import annotations

import itertools
from bisect import bisect
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from drld.requests.buckets.policy import Policy

DAY_NS = 86_400_000_000_000
POLICY = Policy(capacity=1_000_000, rate=1_000_000, per_ns=DAY_NS)
EMPTIED = 50
"""Keys 0 to 49."""
DEBT = 3 * POLICY.capacity
"""Tokens taken of each of them: two days pass before one is back."""
REFUSED = 0.05
MOST_COST = 5


class Asked(NamedTuple):
    """A request."""

    key: int
    cost: int

    @property
    def user(self) -> str:
        """The key as a client names it."""
        return f"user-{self.key:07}"

    @property
    def emptied(self) -> bool:
        """Whether it is to be refused."""
        return self.key < EMPTIED


@dataclass(frozen=True, slots=True)
class Load:
    """A distribution of requests over keys."""

    name: str
    keys: int
    weights: tuple[float, ...] | None = None
    """The cumulative weights of the keys; None: all are alike."""

    def draw(self, rng: Random, count: int) -> list[Asked]:
        """Draw `count` requests."""
        return [Asked(self._key(rng), rng.randint(1, MOST_COST)) for _ in range(count)]

    def _key(self, rng: Random) -> int:
        if rng.random() < REFUSED:
            return rng.randrange(EMPTIED)
        if self.weights is None:
            return rng.randrange(EMPTIED, self.keys)
        return EMPTIED + bisect(self.weights, rng.random() * self.weights[-1])


def uniform(keys: int) -> Load:
    """All keys alike: next to no key comes twice in a slice."""
    return Load("uniform", keys)


def zipf(keys: int, exponent: float = 1.1) -> Load:
    """Few keys have most of the requests, as users have (the first has about a tenth)."""
    weights = itertools.accumulate(rank**-exponent for rank in range(1, keys - EMPTIED))
    return Load(f"Zipf {exponent}", keys, tuple(weights))
