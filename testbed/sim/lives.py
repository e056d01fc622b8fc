"""What sessions (`drld.gossip.wire.session`) mean for updates that cross a network as values.

All know the lives that the others begin with. From then on: what an earlier life said is refused
once a later one is known; what is for another life of one's own is refused and answered; a later
life of a peer is met when it answers, or shows that it has met one's own; and a limiter has nothing
to say but who it is to a peer that it has not met. Proofs are taken for granted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sealed(Generic[T]):
    """A datagram of one session."""

    sender: int
    receiver: int | None
    """The life it is for, as far as the sender has met one."""
    content: T | None = None
    """None: it only shows who sent it."""
    answer: bool = False


@dataclass(frozen=True, slots=True)
class Opened(Generic[T]):
    """What came of a datagram."""

    met: int | None = None
    """The life of the peer that is new."""
    content: T | None = None
    answer: Sealed[T] | None = None


class Lives(Generic[T]):
    """The lives of a limiter, and what it knows of those of others."""

    def __init__(self) -> None:
        self.mine = 0
        self._known: dict[str, int] = {}

    def restart(self) -> None:
        """Begin another one, which knows nothing."""
        self.mine += 1
        self._known.clear()

    def seal(self, peer: str, content: T) -> Sealed[T]:
        """Make a datagram for a peer."""
        known = self._life(peer)
        return Sealed(self.mine, known, None if known is None else content)

    def open(self, peer: str, sealed: Sealed[T]) -> Opened[T]:
        """Find out what a peer's datagram says."""
        known = self._life(peer)
        if known is not None and sealed.sender < known:
            return Opened()
        for_me = sealed.receiver == self.mine
        met = sealed.sender if sealed.sender != known and (for_me or sealed.answer) else None
        if met is not None:
            known = self._known[peer] = met
        if for_me and known == sealed.sender:
            return Opened(met, sealed.content)
        return Opened(met, answer=Sealed(self.mine, known, answer=True))

    def _life(self, peer: str) -> int | None:
        return self._known.get(peer, None if self.mine else 0)
