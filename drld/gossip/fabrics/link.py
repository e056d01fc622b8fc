"""A link: one peer of one limit, with its sequence numbers and the statistics of its updates."""

from __future__ import annotations

from dataclasses import dataclass, field

from drld.gossip.wire.sequence import Refusal, Sequences


@dataclass(slots=True)
class LinkStats:
    """The updates that came over one link since the daemon started."""

    received: int = 0
    """Number of accepted updates."""
    lost: int = 0
    """Number of lost updates, as gaps in the peer's sequence numbers show."""
    late: int = 0
    """Updates that came after a newer one, and were discarded; also part of `lost`. Replayed
    updates are counted elsewhere (`sequence.Numbering`)."""
    rejected: int = 0
    """Updates with another allocator's quantity, which were discarded."""

    def plus(self, other: LinkStats) -> LinkStats:
        """The updates of both."""
        return LinkStats(
            self.received + other.received,
            self.lost + other.lost,
            self.late + other.late,
            self.rejected + other.rejected,
        )


@dataclass(slots=True)
class Link(LinkStats):
    """One peer of one limit. A limit has as many as peers, so it is small."""

    sequences: Sequences = field(default_factory=Sequences)

    def accept(self, sequence: int, now_round: int = 0) -> int | None:
        """The number of updates lost before this one; None: discard it, by its sequence number."""
        lost = self.sequences.accept(sequence, now_round)
        if isinstance(lost, Refusal):
            self.late += lost is Refusal.LATE
            return None
        self.received += 1
        self.lost += lost
        return lost
