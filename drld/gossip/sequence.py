"""The receiving end of one sequence counter: what was lost, late, repeated or started over.

Paper, section 4.2: "the receiving limiter uses the sequence number to determine if an update is
lost, and if so, compensates by scaling the value and weight of the newest update".

Theory of operation. A sender counts the updates of one (sender, receiver, limit) triple from 0,
mod 2**32. Numbers are compared in serial arithmetic (RFC 1982), so the wrap from 2**32 - 1 to 0 is
a step of one. With `newest` the newest number accepted:

- ahead of `newest` by d: accepted, d - 1 updates are lost;
- equal or behind: discarded. It is a duplicate, or it was counted lost when a newer one overtook
  it and whoever compensates for losses has done so already.

Restart. A peer that starts over counts from 0 again and would be discarded until it has caught up.
Discarded numbers that rise while nothing newer comes are a new life of the peer: two in a row when
they are further behind than any reordering (`REORDER_WINDOW`), so that one stray old packet cannot
reset the counter; `RESTART_RUN` in a row when they are near, for real reordering produces short
runs. The run that proves the restart costs the updates before its last one; the last is accepted
with no loss, as what was lost before it is unknown. A handshake will replace the guess.

Invariants: each number is accepted at most once in a life; between two restarts, accepted + lost
grow by exactly the distance the newest number moves.
"""

from __future__ import annotations

from typing import NamedTuple

MODULUS = 1 << 32
REORDER_WINDOW = 16
"""Updates by which a packet may be overtaken and still count as reordered."""
RESTART_RUN = 4
"""Rising discarded numbers, with nothing newer between them, that prove a restart."""


def serial_distance(number: int, reference: int) -> int:
    """How far `number` is ahead of `reference`, from -2**31 to 2**31 - 1 (RFC 1982)."""
    half = MODULUS // 2
    return (number - reference + half) % MODULUS - half


class Acceptance(NamedTuple):
    """What an accepted sequence number says."""

    lost: int
    """Updates between this one and the one accepted before it that did not come."""
    restarted: bool
    """The peer began to count anew."""


class SequenceReceiver:
    """Judges the sequence numbers of one triple in the order of their arrival."""

    __slots__ = ("_newest", "_run", "_run_newest")

    def __init__(self) -> None:
        self._newest: int | None = None
        self._run = 0
        self._run_newest = 0

    def accept(self, sequence: int) -> Acceptance | None:
        """Judge one number (0 to 2**32 - 1); None means: discard the update."""
        if self._newest is None:
            self._newest = sequence
            return Acceptance(lost=0, restarted=False)
        ahead = serial_distance(sequence, self._newest)
        if ahead > 0:
            self._newest = sequence
            self._run = 0
            return Acceptance(lost=ahead - 1, restarted=False)
        rises = self._run and 0 < serial_distance(sequence, self._run_newest) <= REORDER_WINDOW
        self._run = self._run + 1 if rises else 1
        self._run_newest = sequence
        if self._run < (2 if ahead < -REORDER_WINDOW else RESTART_RUN):
            return None
        self._newest = sequence
        return Acceptance(lost=0, restarted=True)
