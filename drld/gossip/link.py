"""One peer as a fabric knows it for one limit: its sequence numbers and statistics."""

from __future__ import annotations

from dataclasses import dataclass

from drld.gossip.sequence import MODULUS, Acceptance, SequenceReceiver


@dataclass(slots=True)
class LinkStats:
    """What came over one link (one peer, one limit) since the daemon started."""

    received: int = 0
    """Updates accepted."""
    lost: int = 0
    """Updates that the gaps in the peer's sequence numbers show as lost."""
    late: int = 0
    """Updates discarded because a newer one, or their compensation, had been accounted for:
    duplicates and overtaken ones (the latter are among the lost, too)."""
    rejected: int = 0
    """Updates discarded for what they say (quantity of another allocator)."""


class Link:
    """One peer, one limit."""

    __slots__ = ("_next_sequence", "_receiver", "stats")

    def __init__(self) -> None:
        self.stats = LinkStats()
        self._receiver = SequenceReceiver()
        self._next_sequence = 0

    def take_sequence(self) -> int:
        """The number of the next update to this peer."""
        sequence = self._next_sequence
        self._next_sequence = (sequence + 1) % MODULUS
        return sequence

    def accept(self, sequence: int) -> Acceptance | None:
        """Judge an update by its sequence number; None: discard it."""
        acceptance = self._receiver.accept(sequence)
        if acceptance is None:
            self.stats.late += 1
        else:
            self.stats.received += 1
            self.stats.lost += acceptance.lost
        return acceptance
