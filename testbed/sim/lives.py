"""The effect of sessions (`drld.gossip.wire.session`) on updates that cross a network as values.

All limiters know each other's first lives. A message from an earlier life is refused once a later
one is known. A message for another life of the receiver is refused and answered. A later life of a
peer is met when it answers, or shows that it has met the receiver's present life. A limiter sends
only its identity to a peer that it has not met. Proofs always succeed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class Sealed(Generic[T]):
    """A datagram of one session."""

    sender: int
    receiver: int | None
    """The receiver's life that the sender has met; None: it has met none."""
    content: T | None = None
    """The message; None: the datagram only identifies its sender."""
    answer: bool = False


@dataclass(slots=True)
class Opened(Generic[T]):
    """The outcome of a datagram."""

    met: int | None = None
    """The peer's life that the datagram shows, if it is new; else None."""
    content: T | None = None
    answer: Sealed[T] | None = None


class Lives(Generic[T]):
    """A limiter's own life, and its knowledge of its peers' lives."""

    def __init__(self) -> None:
        self.mine = 0
        self._known: dict[str, int] = {}

    def restart(self) -> None:
        """Begin another life, without knowledge of peers."""
        self.mine += 1
        self._known.clear()

    def seal(self, peer: str, content: T) -> Sealed[T]:
        """Make a datagram for a peer."""
        known = self._life(peer)
        return Sealed(self.mine, known, None if known is None else content)

    def open(self, peer: str, sealed: Sealed[T]) -> Opened[T]:
        """Evaluate a peer's datagram."""
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
