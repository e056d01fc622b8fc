"""One peer of one limit: the sequence numbers both ways, and what became of the peer's updates."""

from __future__ import annotations

from dataclasses import dataclass, field

from drld.gossip.wire.sequence import Refusal, Sequences


@dataclass(slots=True)
class LinkStats:
    """What came over one link (one peer, one limit) since the daemon started."""

    received: int = 0
    """Updates accepted."""
    lost: int = 0
    """Updates that the gaps in the peer's sequence numbers show as lost."""
    late: int = 0
    """Updates discarded because a newer one, or their compensation, had been counted. They are
    among the lost, too. Replayed updates count elsewhere (`sequence.Numbering`)."""
    rejected: int = 0
    """Updates discarded for what they say (quantity of another allocator)."""


@dataclass(slots=True)
class Link(LinkStats):
    """One peer, one limit. There are as many as peers, so it is small."""

    sequences: Sequences = field(default_factory=Sequences)

    def accept(self, sequence: int, now_round: int = 0) -> int | None:
        """Judge an update by its sequence number: how many were lost before it; None: discard."""
        lost = self.sequences.accept(sequence, now_round)
        if isinstance(lost, Refusal):
            self.late += lost is Refusal.LATE
            return None
        self.received += 1
        self.lost += lost
        return lost
