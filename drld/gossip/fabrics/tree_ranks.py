"""Ranks in a tree of sums: which limiters may be the parent of a limiter, and which it prefers.

Theory of operation. A limiter's rank is a hash of its name, and so the same for all limiters,
whatever they know of the fleet. A limiter's parent always has a lower rank. So no choice of parents
makes a loop, even if limiters disagree about the fleet. The lowest rank is the root.

Preference. Let k = branching - 1, and at least 2. A limiter of rank x prefers the *band* of ranks
from x / 2k to x / k. A limiter of rank y is in the band of the ranks from k y to 2 k y. So
2 k ln 2 limiters prefer it on average if its rank is below 1 / 2k of all ranks, and fewer above.
The tree is about log(N) / log(1.4 k) deep, and no limiter has many children. Within the band, and
then among the others, a hash of both names gives the order (rendezvous hashing, Thaler and
Ravishankar 1998). Each limiter has another order, and a limiter that joins or leaves changes the
parents of few.

Invariants: the order of ranks is total. `candidates` are exactly the peers of lower rank. A peer
that joins or leaves does not change the order of the others.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import blake2s

_BITS = 64


class Role(enum.IntEnum):
    """The receiver of an update as its sender sees it; the values are those on the wire."""

    NONE = 0
    PARENT = 1
    CHILD = 2
    CANDIDATE = 3
    """The receiver may become the parent. The sender asks it for an answer."""


@lru_cache(maxsize=1 << 16)
def rank(name: str) -> tuple[int, str]:
    """A limiter's rank: a number from 0 to 2**64 - 1, and its name in case two are equal."""
    return int.from_bytes(_hasher(name.encode()).digest(), "big"), name


def band(name: str, branching: int) -> tuple[int, int]:
    """The ranks that a limiter prefers: from the first number to below the second."""
    most = rank(name)[0] // max(2, branching - 1)
    return most // 2, most


def candidates(name: str, peers: Iterable[str], branching: int) -> tuple[str, ...]:
    """The peers that may be a limiter's parent, the preferred ones first."""
    least, most = band(name, branching)
    place = affinity(name)

    def preference(peer: str) -> tuple[bool, bytes]:
        in_band = least <= rank(peer)[0] < most
        return not in_band, place(peer)

    return tuple(sorted((peer for peer in peers if rank(peer) < rank(name)), key=preference))


def affinity(name: str) -> Callable[[str], bytes]:
    """A function of a peer's name: the hash of both names, of which a limiter prefers the least."""
    own = _hasher(f"{name}\0".encode())

    def place(peer: str) -> bytes:
        both = own.copy()
        both.update(peer.encode())
        return both.digest()

    return place


def _hasher(data: bytes) -> blake2s:
    return blake2s(data, digest_size=_BITS // 8, person=b"drld-tre")
