"""Who of a fleet may report to whom, in a tree of sums: roles, ranks and preferences.

Theory of operation. Every name has a rank, a hash of it, the same for all limiters whatever they
know of the fleet. A limiter reports to one of lower rank, its parent, and never to another; so no
choice of parents, by limiters that disagree about who is there as well, can make a loop, and the
lowest rank there is has nobody to report to: the root.

Which of the lower ranks: those whose rank is between 1/2k and 1/k of the limiter's own come first,
where k = branching - 1, and 2 at least. Of n limiters between ranks x and 2x one of rank y is in
the band of those between k y and 2 k y, so that a limiter is preferred by 2 k ln 2 others on
average if its rank is below 1/2k, and fewer above: the tree is about log(N) / log(1.4 k) deep and
no limiter has many children. Within the band, and after it among the others, the order is that of a
hash of both names (rendezvous hashing, Thaler and Ravishankar 1998): it is another one for each
limiter, and who joins or leaves changes the parents of a few.

Invariants: the order of ranks is total; `candidates` are exactly the peers of lower rank; a peer
that joins or leaves does not change the order of the others.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import blake2s

_BITS = 64


class Role(enum.IntEnum):
    """What the receiver of an update is to its sender, and its number on the wire."""

    NONE = 0
    PARENT = 1
    CHILD = 2
    CANDIDATE = 3
    """It may become the parent, and is asked whether it is there."""


@lru_cache(maxsize=1 << 16)
def rank(name: str) -> tuple[int, str]:
    """Where a limiter stands: a number from 0 to 2**64 - 1, and its name if two are alike."""
    return int.from_bytes(_hasher(name.encode()).digest(), "big"), name


def band(name: str, branching: int) -> tuple[int, int]:
    """The ranks that a limiter prefers: from the first to below the second."""
    most = rank(name)[0] // max(2, branching - 1)
    return most // 2, most


def candidates(name: str, peers: Iterable[str], branching: int) -> tuple[str, ...]:
    """The peers that a limiter may report to, the one it had best report to first."""
    least, most = band(name, branching)
    place = affinity(name)

    def preference(peer: str) -> tuple[bool, bytes]:
        in_band = least <= rank(peer)[0] < most
        return not in_band, place(peer)

    return tuple(sorted((peer for peer in peers if rank(peer) < rank(name)), key=preference))


def affinity(name: str) -> Callable[[str], bytes]:
    """The hash of both names, by that of a peer: a limiter prefers the least one in its band."""
    own = _hasher(f"{name}\0".encode())

    def place(peer: str) -> bytes:
        both = own.copy()
        both.update(peer.encode())
        return both.digest()

    return place


def _hasher(data: bytes) -> blake2s:
    return blake2s(data, digest_size=_BITS // 8, person=b"drld-tre")
