"""Whom a limiter tells in a round. Pure: randomness is an argument.

`flat` chooses uniformly among the peers with pending news (3.1). The thesis does not say whether a
peer without news may cost the round; its plots show that it does not: the counter is silent 10 s
after a burst, where a choice among all takes `29 (ln 29 + ln 30)` rounds, a minute. That reading is
`flat_among_all`. `least_informed` is LINF gossip (4.2.4): the peer with the most pending entries,
ties at random. Where news are equal it becomes a round robin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TypeAlias

from drld.requests.buckets.pending import Pending

Spread: TypeAlias = Callable[[Mapping[str, Pending], Random], str | None]
"""Returns the peer of this round; None: no peer needs to be told."""


def flat(pending: Mapping[str, Pending], rng: Random) -> str | None:
    """Return a random peer that has pending news."""
    waiting = [peer for peer, one in pending.items() if one.news]
    return rng.choice(waiting) if waiting else None


def flat_among_all(pending: Mapping[str, Pending], rng: Random) -> str | None:
    """Return a random peer, or None if that peer has no pending news."""
    peer = rng.choice(list(pending))
    return peer if pending[peer].news else None


def least_informed(pending: Mapping[str, Pending], rng: Random) -> str | None:
    """Return the peer with the most pending entries."""
    most = max((one.entries for one in pending.values()), default=0)
    if not most:
        return None
    return rng.choice([peer for peer, one in pending.items() if one.entries == most])
