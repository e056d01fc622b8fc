"""What limiters tell each other of a third: which of two rumours holds, and how long each is told.

Order. Rumours of one life of a limiter are ordered by the counter, which only that life raises, and
for the same counter by state: alive, suspect, dead. So a life refutes what is said of it by raising
its counter. That it has left is said by itself, and final. Two of the same standing are one, with
the accusers of both. Merging is therefore commutative, associative and idempotent: it does not
matter in which order, or how often, rumours arrive. Lives are random numbers and have no order;
which of them is the present one is `drld.gossip.verdicts`'s to judge.

Accusers. A suspicion carries a set of `ACCUSER_BITS` bits; who raises or confirms it sets one, by
his place among the names of the fleet. The number of bits is at most the number of accusers, and
is that number in a fleet of up to `ACCUSER_BITS` that agrees about who is in it.

Telling. Each rumour rides on so many messages of each limiter, the one that was told least first,
and of those the newest. A reminder rides on one, after all that.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from drld.gossip.kinship import rank
from drld.gossip.wire.control_codec import ACCUSER_BITS, Rumour, State


def subject(name: str) -> int:
    """What a limiter is called in control messages."""
    return rank(name)[0]


def accuser(name: str, peers: Collection[str]) -> int:
    """The bit of a limiter in a rumour's accusers."""
    return 1 << sum(peer < name for peer in peers) % ACCUSER_BITS


def merged(known: Rumour, heard: Rumour) -> Rumour:
    """What holds, of two rumours of the same life; `known` itself if `heard` adds nothing."""
    if _standing(heard) > _standing(known):
        return heard
    if _standing(heard) == _standing(known) and heard.accusers & ~known.accusers:
        return replace(known, accusers=known.accusers | heard.accusers)
    return known


def outdated(heard: Rumour, known: Rumour) -> bool:
    """Whether who says so, of the same life, has not heard what is known."""
    return _standing(heard) < _standing(known)


def _standing(rumour: Rumour) -> tuple[bool, int, int]:
    return rumour.state is State.LEFT, rumour.counter, rumour.state


@dataclass(slots=True)
class _Told:
    rumour: Rumour
    number: int
    times: int = 0


class Rumours:
    """What there is to pass on, at most one rumour of each limiter."""

    def __init__(self, transmissions: int) -> None:
        self.transmissions = transmissions
        """How often each is told."""
        self._queue: dict[int, _Told] = {}
        self._added = 0

    def of(self, subjects: Collection[int], transmissions: int) -> Rumours:
        """What there is to pass on of these limiters, each so often in all."""
        kept = Rumours(transmissions)
        kept._queue = {
            about: told
            for about, told in self._queue.items()
            if about in subjects and told.times < transmissions
        }
        kept._added = self._added
        return kept

    def add(self, rumour: Rumour) -> None:
        """Pass this on, in the place of what was told of the same limiter."""
        self._added += 1
        self._queue[rumour.subject] = _Told(rumour, self._added)

    def remind(self, rumour: Rumour) -> None:
        """Pass this on once more, unless something is being told of the same limiter."""
        self._added += 1
        last = _Told(rumour, self._added, self.transmissions - 1)
        self._queue.setdefault(rumour.subject, last)

    def take(self, most: int, without: frozenset[int] = frozenset()) -> list[Rumour]:
        """What to tell next, and nothing of these limiters."""
        waiting = [told for subject, told in self._queue.items() if subject not in without]
        waiting.sort(key=lambda told: (told.times, -told.number))
        for told in waiting[:most]:
            told.times += 1
            if told.times >= self.transmissions:
                del self._queue[told.rumour.subject]
        return [told.rumour for told in waiting[:most]]
