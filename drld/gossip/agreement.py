"""Whether limiters mean the same by their limits, and if not, by which of them.

Theory of operation. Each limit has a hash of what the fleet must agree upon: id, rate, burst
(in bytes, written or automatic), allocator with its parameters, estimate interval, shares, excess,
weights (a weight of 1 is the same as none). So have the settings of the fabric, under
the id that no limit has. The digest of a set of limits is the exclusive or of their hashes. Every
probe and acknowledgement carries one: of the limits that the low bits of its sequence number
select, all of them as a rule. Two limiters whose digests of all differ disagree. Ordered by their
ids read backwards, the limits that a selector selects stand side by side; so a digest is the
difference of two sums of a row, whatever is asked for by whomever.

Which limits those are is found by halves, with more probes that select fewer limits: those whose id
ends in certain bits. From the digest of a set and of one half of it follows that of the other half;
so a limit is found by 16 questions, one after the other. One that only follows from others is asked
for itself before it is named: the peer may have changed its limits between two answers, and what
follows from both is no limit at all. `MAX_FOUND` are looked for, of one peer at
a time, and again when the peer's digest is another one.

The hash is a convenience and not a proof against those who look for collisions: a limiter that
wants to deceive may as well send the right digest."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2s
from itertools import accumulate
from operator import xor
from typing import NamedTuple

from drld.model import HEARTBEAT
from drld.spec import GossipSpec, LimitSpec

ID_BITS = 16
SELECTOR_BITS = 21
"""Of a sequence number."""
GOSSIP_ID = HEARTBEAT
"""In the place of a limit's: the settings of the fabric."""
MAX_FOUND = 4
"""Limits that are named."""


class Selector(NamedTuple):
    """The limits whose id ends in these bits."""

    bits: int = 0
    """How many; 0 selects all."""
    ending: int = 0

    def pack(self) -> int:
        """Its number, of `SELECTOR_BITS` bits; 0 selects all."""
        return self.bits << ID_BITS | self.ending

    @classmethod
    def of(cls, sequence: int) -> Selector:
        """That of a sequence number; there are no more than 16 bits to select by."""
        bits = min(sequence >> ID_BITS & 31, ID_BITS)
        return cls(bits, sequence & ((1 << ID_BITS) - 1))

    def halves(self) -> tuple[Selector, Selector]:
        """Two that select the same together."""
        bits = self.bits + 1
        return Selector(bits, self.ending), Selector(bits, self.ending | 1 << self.bits)


ALL = Selector()


@dataclass(slots=True)
class _Peer:
    digest: int
    """Of all limits."""
    found: list[int]
    waiting: list[tuple[Selector, int]]
    """Sets in which there is a limit to find, and the peer's digest of each."""


class Agreement:
    """This limiter's limits, and who has others."""

    def __init__(self, limits: Iterable[LimitSpec], gossip: GossipSpec, patience_ns: int) -> None:
        """After `patience_ns` without an answer a question is asked again."""
        row = sorted((_backwards(limit.id), _hash_of_limit(limit)) for limit in limits)
        row.insert(0, (_backwards(GOSSIP_ID), _hash(gossip)))
        self._places = [place for place, _ in row]
        self._sums: list[int] = [0, *accumulate((hash_ for _, hash_ in row), xor)]
        self._peers: dict[str, _Peer] = {}
        self._patience_ns = patience_ns
        self._asked_ns: int | None = None

    def digest(self, selector: Selector) -> int:
        """Of the limits that are selected."""
        if selector.ending >> selector.bits:
            return 0
        first = _backwards(selector.ending)
        after = first + (1 << ID_BITS - selector.bits)
        places, sums = self._places, self._sums
        return sums[bisect_left(places, first)] ^ sums[bisect_left(places, after)]

    def compare(self, peer: str, selector: Selector, digest: int) -> None:
        """A peer has told its digest."""
        if selector != ALL:
            self._learn(peer, selector, digest)
        elif digest == self.digest(ALL):
            if self._peers.pop(peer, None) is not None:
                self._asked_ns = None
        elif peer not in self._peers or self._peers[peer].digest != digest:
            self._peers[peer] = _Peer(digest, [], [(ALL, digest)])
            self._asked_ns = None

    def question(self, now_ns: int) -> tuple[str, Selector] | None:
        """Whom to ask next for which digest."""
        if self._asked_ns is not None and now_ns - self._asked_ns < self._patience_ns:
            return None
        for name, peer in self._peers.items():
            if peer.waiting and len(peer.found) < MAX_FOUND:
                self._asked_ns = now_ns
                # Who does not answer keeps nobody waiting.
                self._peers[name] = self._peers.pop(name)
                selector = peer.waiting[-1][0]
                return name, selector if selector.bits == ID_BITS else selector.halves()[0]
        return None

    def disagreements(self) -> dict[str, list[int]]:
        """Who means other limits than this limiter, and the ids of those that were found, among
        them `GOSSIP_ID`."""
        return {name: sorted(peer.found) for name, peer in self._peers.items()}

    def retain(self, peers: Iterable[str]) -> None:
        """Forget all others."""
        kept = set(peers)
        self._peers = {name: peer for name, peer in self._peers.items() if name in kept}

    def _learn(self, name: str, selector: Selector, digest: int) -> None:
        peer = self._peers.get(name)
        if peer is None or not peer.waiting or len(peer.found) >= MAX_FOUND:
            return
        whole, theirs = peer.waiting[-1]
        if whole.bits == ID_BITS:
            if selector == whole:
                self._asked_ns = None
                peer.waiting.pop()
                if digest != self.digest(whole):
                    peer.found.append(whole.ending)
            return
        halves = whole.halves()
        if selector != halves[0]:
            return
        self._asked_ns = None
        peer.waiting.pop()
        for half, told in zip(halves, (digest, digest ^ theirs), strict=True):
            if told == self.digest(half):
                continue
            if half.bits == ID_BITS and half == selector:
                peer.found.append(half.ending)
            else:
                peer.waiting.append((half, told))


def _backwards(limit_id: int) -> int:
    return int(f"{limit_id:0{ID_BITS}b}"[::-1], 2)


def _hash_of_limit(limit: LimitSpec) -> int:
    return _hash(
        (
            *(limit.id, limit.rate, limit.burst, limit.allocator, limit.parameters),
            *(limit.interval_ns, sorted(limit.shares.items()), limit.excess.value),
            sorted(item for item in limit.weights.items() if item[1] != 1),
            *((str(limit.flow),) if limit.flow else ()),
        )
    )


def _hash(what: object) -> int:
    digest = blake2s(repr(what).encode(), digest_size=8, person=b"drld-lim").digest()
    return int.from_bytes(digest, "big")
