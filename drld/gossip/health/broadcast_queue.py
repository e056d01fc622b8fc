"""Rumours about limiters: which of two holds, and the queue of those to pass on.

Order. Rumours of one life of a limiter are ordered by the counter, which only that life raises,
and for the same counter by state: alive, suspect, dead. So a life refutes a rumour about itself by
raising its counter. Only the limiter itself says that it has left, and that is final. Two rumours
of the same standing are one, with the accusers of both. Merging is therefore commutative,
associative and idempotent: order and repetition do not matter. Lives are random numbers and have no
order. `drld.gossip.health.peer_states` judges which one is the present life.

Accusers. A suspicion carries a set of `ACCUSER_BITS` bits. A limiter that raises or confirms it
sets one bit, chosen by its place among the names of the fleet. The number of bits is at most the
number of accusers. It equals that number in a fleet of up to `ACCUSER_BITS` limiters that agree on
their members.

Sending. Each rumour rides on a fixed number of this limiter's messages. Rumours that were sent
least often go first, and among those the newest. A reminder rides on one message, after all others.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from drld.gossip.fabrics.tree_ranks import rank
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


class BroadcastQueue:
    """The rumours to pass on, at most one about each limiter."""

    def __init__(self, transmissions: int) -> None:
        self.transmissions = transmissions
        """How often each rumour is sent."""
        self._queue: dict[int, _Told] = {}
        self._added = 0

    def retain(self, subjects: Collection[int], transmissions: int) -> None:
        """Keep the rumours about these limiters, each to be sent so often in all."""
        self.transmissions = transmissions
        self._queue = {
            about: told
            for about, told in self._queue.items()
            if about in subjects and told.times < transmissions
        }

    def add(self, rumour: Rumour) -> None:
        """Pass this rumour on, in place of an older one about the same limiter."""
        self._added += 1
        self._queue[rumour.subject] = _Told(rumour, self._added)

    def remind(self, rumour: Rumour) -> None:
        """Pass this rumour on once more, unless another one about the limiter is queued."""
        self._added += 1
        last = _Told(rumour, self._added, self.transmissions - 1)
        self._queue.setdefault(rumour.subject, last)

    def take(self, most: int, without: frozenset[int] = frozenset()) -> list[Rumour]:
        """The rumours to send next, and none about these limiters."""
        waiting = [told for subject, told in self._queue.items() if subject not in without]
        waiting.sort(key=lambda told: (told.times, -told.number))
        for told in waiting[:most]:
            told.times += 1
            if told.times >= self.transmissions:
                del self._queue[told.rumour.subject]
        return [told.rumour for told in waiting[:most]]
