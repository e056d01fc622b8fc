"""Rumours about limiters: their order, and the queue of rumours to send.

Order. Rumours about one incarnation (*life*) of a limiter are ordered by the counter, which only
that life raises. Those with the same counter are ordered by state: alive, suspect, dead. So a life
refutes a rumour about itself by raising its counter. Only the limiter itself says that it has left,
and that is final. Two rumours of the same standing merge into one with the accusers of both.
Merging is therefore commutative, associative and idempotent: order and repetition do not matter.
Lives are random numbers without an order. `drld.gossip.health.peer_states` decides which one is
present.

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
    """The hash of a limiter's name, which stands for it in control messages."""
    return rank(name)[0]


def accuser(name: str, peers: Collection[str]) -> int:
    """The bit of a limiter in a rumour's accusers."""
    return 1 << sum(peer < name for peer in peers) % ACCUSER_BITS


def merged(known: Rumour, heard: Rumour) -> Rumour:
    """The merger of two rumours about the same life; `known` itself if `heard` adds nothing."""
    if _standing(heard) > _standing(known):
        return heard
    if _standing(heard) == _standing(known) and heard.accusers & ~known.accusers:
        return replace(known, accusers=known.accusers | heard.accusers)
    return known


def outdated(heard: Rumour, known: Rumour) -> bool:
    """Whether a rumour's sender does not know a newer rumour about the same life."""
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
        """Number of times that each rumour is sent."""
        self._queue: dict[int, _Told] = {}
        self._added = 0

    def retain(self, subjects: Collection[int], transmissions: int) -> None:
        """Keep only the rumours about these limiters, each sent `transmissions` times in all."""
        self.transmissions = transmissions
        self._queue = {
            about: told
            for about, told in self._queue.items()
            if about in subjects and told.times < transmissions
        }

    def add(self, rumour: Rumour) -> None:
        """Queue a rumour, in place of an older one about the same limiter."""
        self._added += 1
        self._queue[rumour.subject] = _Told(rumour, self._added)

    def remind(self, rumour: Rumour) -> None:
        """Queue a rumour to be sent once, unless another one about the limiter is queued."""
        self._added += 1
        last = _Told(rumour, self._added, self.transmissions - 1)
        self._queue.setdefault(rumour.subject, last)

    def take(self, most: int, without: frozenset[int] = frozenset()) -> list[Rumour]:
        """The rumours to send next, `most` at most, and none about the limiters `without`."""
        waiting = [told for subject, told in self._queue.items() if subject not in without]
        waiting.sort(key=lambda told: (told.times, -told.number))
        for told in waiting[:most]:
            told.times += 1
            if told.times >= self.transmissions:
                del self._queue[told.rumour.subject]
        return [told.rumour for told in waiting[:most]]
