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


class Link(LinkStats):
    """One peer, one limit. There are as many as peers, so it is small."""

    __slots__ = ("_next_sequence", "_receiver")

    def __init__(self) -> None:
        super().__init__()
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
            self.late += 1
        else:
            self.received += 1
            self.lost += acceptance.lost
        return acceptance
