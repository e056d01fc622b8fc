"""Digests of a limiter's configuration: which peers have other limits, and which limits differ.

Theory of operation. A plane registers those settings of a limit that the fleet must share, as
canonical bytes (`canonical`) under the limit's id. A limit's hash is that of its id and these
bytes. The settings of the fabric have a hash, too, under the id that no limit has. The digest of a
set of limits is the exclusive or of their hashes. The low bits of the sequence number of a probe or
acknowledgement select limits, usually all of them, and the message carries their digest. Two
limiters disagree if their digests of all limits differ. Limits are ordered by their ids read
backwards. The limits of a selector are then neighbours, and their digest is the difference of two
prefix sums.

Bisection finds the limits that differ, with further probes that select the limits whose id ends in
certain bits. The digests of a set and of one half of it give that of the other half. So 16
questions in a row find a limit. Before a limit that was only inferred is named, a question about it
alone confirms it, because the peer may have changed its limits between two answers. The digest of a
limit that a limiter does not have is 0. The search is for up to `MAX_FOUND` limits, of one peer at
a time. It begins again if the peer's digest changes.

The hash is no defence against deliberate collisions: a limiter that wants to deceive can also send
the right digest.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2s
from itertools import accumulate
from operator import xor
from types import MappingProxyType
from typing import NamedTuple

from drld.model import HEARTBEAT

ID_BITS = 16
SELECTOR_BITS = 21
"""The bits of a sequence number that hold the selector."""
GOSSIP_ID = HEARTBEAT
"""The id of the settings of the fabric."""
_NONE: Mapping[int, int] = MappingProxyType({})
MAX_FOUND = 4
"""The most limits that are named for a peer."""


class Selector(NamedTuple):
    """The limits whose id ends in these bits."""

    bits: int = 0
    """The number of bits; 0 selects all limits."""
    ending: int = 0

    def pack(self) -> int:
        """The selector as a number of `SELECTOR_BITS` bits; 0 selects all limits."""
        return self.bits << ID_BITS | self.ending

    @classmethod
    def of(cls, sequence: int) -> Selector:
        """The selector in a sequence number, of at most 16 bits."""
        bits = min(sequence >> ID_BITS & 31, ID_BITS)
        return cls(bits, sequence & ((1 << ID_BITS) - 1))

    def halves(self) -> tuple[Selector, Selector]:
        """Two selectors, each of one half of the selected limits."""
        bits = self.bits + 1
        return Selector(bits, self.ending), Selector(bits, self.ending | 1 << self.bits)


ALL = Selector()


@dataclass(slots=True)
class _Peer:
    digest: int
    """The peer's digest of all limits."""
    found: dict[int, bool]
    """Whether the peer has the limit, by the ids of limits that differ."""
    waiting: list[tuple[Selector, int]]
    """Sets with a limit to find, and the peer's digest of each."""


class ConfigDigest:
    """The digests of this limiter's limits, and the peers whose limits differ."""

    def __init__(
        self, settings: Mapping[int, bytes], patience_ns: int, stay: Mapping[int, int] = _NONE
    ) -> None:
        """Digest the settings of limits.

        Args:
            settings: the canonical bytes by id.
            patience_ns: the time without an answer after which a question is repeated.
            stay: the `hashes` of further limits, which an earlier digest has computed.
        """
        self.hashes = {**stay, **{id_: _hash(id_, form) for id_, form in settings.items()}}
        """The hash of each limit by its id."""
        row = sorted((_backwards(id_), hash_) for id_, hash_ in self.hashes.items())
        self._places = [place for place, _ in row]
        self._sums: list[int] = [0, *accumulate((hash_ for _, hash_ in row), xor)]
        self._peers: dict[str, _Peer] = {}
        self._agreeing: set[str] = set()
        """The peers whose last digest was this limiter's."""
        self._patience_ns = patience_ns
        self._asked_ns: int | None = None

    def digest(self, selector: Selector) -> int:
        """The digest of the selected limits."""
        if selector.ending >> selector.bits:
            return 0
        first = _backwards(selector.ending)
        after = first + (1 << ID_BITS - selector.bits)
        places, sums = self._places, self._sums
        return sums[bisect_left(places, first)] ^ sums[bisect_left(places, after)]

    def compare(self, peer: str, selector: Selector, digest: int) -> None:
        """Compare a digest that a peer has sent."""
        if selector != ALL:
            self._learn(peer, selector, digest)
            return
        if digest == self.digest(ALL):
            self._agreeing.add(peer)
            if self._peers.pop(peer, None) is not None:
                self._asked_ns = None
            return
        self._agreeing.discard(peer)
        if peer not in self._peers or self._peers[peer].digest != digest:
            self._peers[peer] = _Peer(digest, {}, [(ALL, digest)])
            self._asked_ns = None

    def question(self, now_ns: int) -> tuple[str, Selector] | None:
        """The next peer to ask, and the selector of the limits in question."""
        if self._asked_ns is not None and now_ns - self._asked_ns < self._patience_ns:
            return None
        for name, peer in self._peers.items():
            if peer.waiting and len(peer.found) < MAX_FOUND:
                self._asked_ns = now_ns
                # A peer that does not answer goes to the end, and delays no other.
                self._peers[name] = self._peers.pop(name)
                selector = peer.waiting[-1][0]
                return name, selector if selector.bits == ID_BITS else selector.halves()[0]
        return None

    def agrees(self, peer: str) -> bool:
        """Whether the peer's last digest was this limiter's."""
        return peer in self._agreeing

    def disagreements(self) -> dict[str, dict[int, bool]]:
        """The peers that have other limits, with the ids found so far, `GOSSIP_ID` among them, and
        whether the peer has each limit."""
        return {name: dict(sorted(peer.found.items())) for name, peer in self._peers.items()}

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
                    peer.found[whole.ending] = digest != 0
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
                peer.found[half.ending] = told != 0
            else:
                peer.waiting.append((half, told))


def _backwards(limit_id: int) -> int:
    return int(f"{limit_id:0{ID_BITS}b}"[::-1], 2)


def _hash(limit_id: int, form: bytes) -> int:
    data = limit_id.to_bytes(ID_BITS // 8, "big") + form
    return int.from_bytes(blake2s(data, digest_size=8, person=b"drld-lim").digest(), "big")


def canonical(version: int, settings: Mapping[str, object]) -> bytes:
    """The canonical bytes of settings: JSON, `[version, {key: value, ...}]` without spaces.

    Keys are sorted, and whole numbers have no fraction, as in RFC 8785. A setting that is None or
    an empty table is left out. `version` is that of the plane's keys and their meaning.

    Raises:
        TypeError: a value is neither a number, a text, a truth value nor a table of these.
        ValueError: a number is not finite.
    """
    asked = {key: _plain(it) for key, it in settings.items() if it is not None and it != {}}
    text = json.dumps([version, asked], sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode()


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value
