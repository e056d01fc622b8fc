"""The sequence numbers of one limit between two limiters: what was lost, late or repeated.

Paper, section 4.2: "the receiving limiter uses the sequence number to determine if an update is
lost, and if so, compensates by scaling the value and weight of the newest update".

Theory of operation. A sender counts the updates of one (sender, receiver, limit) triple from 0 in
each session (`drld.gossip.wire.session`), mod 2**32. Numbers are compared in serial arithmetic
(RFC 1982), so the wrap from 2**32 - 1 to 0 is a step of one. With `newest` the newest number
accepted:

- ahead of `newest` by d, at most the *leap*: accepted, d - 1 updates are lost. The leap is `LEAP`
  and a number for each of the last `MOST_LEAP` rounds, since `newest` came, in which nothing of the
  peer came, of whatever limit; `MOST_LEAP` in all at most. (What it did not speak of has no numbers
  that could be lost.)
- further ahead: only noted. If the next number is ahead of that by at most the leap, it is accepted
  (and the noted one counts as lost). The noted one is `LATE`, and what does not follow it is
  `REPLAYED`: who has held it back can send it again and again, and hardly anything else does;
- equal or behind: discarded. The window for reordering is one: an update is only of use as long as
  it is the newest, and one that was overtaken was counted lost, and whoever compensates for losses
  has done so. What is discarded is `LATE` the first time that it comes, and `REPLAYED` if it has
  come before or is older than the last `WINDOW` numbers, of which that is remembered. A network
  makes some of the former, and now and then of the latter; a thousand a second somebody makes.

So an outage that loses more than `MOST_LEAP` updates in a row costs one more; and a single update
that was forged (a tag of four bytes can be guessed: docs/security.md) keeps the true ones out for
no longer than it takes to send `LEAP` of them, where they come in each round.

The first number of a session is judged as if the one before 0 had been accepted, but says nothing
of losses: what was sent before it had either no session to come in, or no limit here.

Numbers belong to the session and the limit's id, not to whoever works with them: they outlive a
limiter that a reload replaces, and begin at 0 when the peer is met (`Numbering`). To meet a peer
costs the same however many limits there are: each notices when it is used next.

Invariants: each number is accepted at most once in a session (unless half the circle, 2**31
updates, has been sent since); from the first one accepted on, accepted + lost grow by exactly the
distance the newest number moves.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from typing import NamedTuple

MODULUS = 1 << 32
LEAP = 10
"""Numbers by which one update may be ahead of one that came just before: 0.5 s, at one in 50 ms;
fewer than a tree misses before it counts anybody out."""
MOST_LEAP = 64
"""The same, however long ago that was."""
WINDOW = 64
"""Numbers up to the newest of which is known whether they have come."""
_MASK = (1 << WINDOW) - 1


def serial_distance(number: int, reference: int) -> int:
    """How far `number` is ahead of `reference`, from -2**31 to 2**31 - 1 (RFC 1982)."""
    half = MODULUS // 2
    return (number - reference + half) % MODULUS - half


class Acceptance(NamedTuple):
    """What an accepted sequence number says."""

    lost: int
    """Updates between this one and the one accepted before it that did not come."""


class Refusal(enum.Enum):
    """Why an update is discarded."""

    LATE = enum.auto()
    """A newer one has come, or it is too far ahead."""
    REPLAYED = enum.auto()
    """It has come before, or is too old to know, or is too far ahead though one was already."""


class Line:
    """What the numbers of all limits between two limiters have in common."""

    __slots__ = ("_heard", "_round", "replayed", "session")

    def __init__(self) -> None:
        self.session = 0
        """Which one this is, of all that the limiter ever had with anybody."""
        self.replayed = 0
        """Updates of the peer that were refused as `REPLAYED`."""
        self._round = 0
        """The last in which an update of the peer was accepted."""
        self._heard = 0
        """Bit i: so was one in the round i before that."""

    def hear(self, now_round: int) -> None:
        """An update of the peer is accepted."""
        if now_round > self._round:
            self._heard = self._heard_until(now_round) | 1
            self._round = now_round

    def missed(self, since_round: int, now_round: int) -> int:
        """In how many of the rounds between the two, the last `MOST_LEAP`, none was."""
        looked_at = max(0, min(now_round - since_round - 1, MOST_LEAP))
        heard = self._heard_until(now_round) >> 1 & (1 << looked_at) - 1
        return looked_at - heard.bit_count()

    def _heard_until(self, now_round: int) -> int:
        """The bits as of a later round."""
        later = max(0, now_round - self._round)
        return self._heard << later & (2 << MOST_LEAP) - 1 if later <= MOST_LEAP else 0


class Sequences:
    """Both directions of one limit between two limiters."""

    __slots__ = ("_came", "_heard", "_line", "_newest", "_next", "_noted", "_round", "_session")

    def __init__(self, line: Line | None = None) -> None:
        self._line = line or Line()
        self._restart()

    def _restart(self) -> None:
        """Begin at 0, in both directions."""
        self._session = self._line.session
        self._next = 0
        self._newest = MODULUS - 1
        self._came = 0
        """Bit i: the number i below the newest has come."""
        self._heard = False
        """Whether any number was accepted."""
        self._round = 0
        """In which one the newest came."""
        self._noted: int | None = None
        """A number that was too far ahead."""

    def take(self) -> int:
        """The number of the next update to the peer."""
        if self._session != self._line.session:
            self._restart()
        sequence = self._next
        self._next = (sequence + 1) % MODULUS
        return sequence

    def accept(self, sequence: int, now_round: int = 0) -> Acceptance | Refusal:
        """Judge a number of the peer's (0 to 2**32 - 1), in this round of one's own."""
        if self._session != self._line.session:
            self._restart()
        ahead = serial_distance(sequence, self._newest)
        if ahead <= 0:
            return self._discard(-ahead)
        if ahead > LEAP and ahead > (leap := self._leap(now_round)):
            noted, self._noted = self._noted, sequence
            if noted is None:
                return Refusal.LATE
            if not 0 < serial_distance(sequence, noted) <= leap:
                return self._replayed()
        lost = ahead - 1 if self._heard else 0
        self._came = (self._came << ahead & _MASK if ahead < WINDOW else 0) | 1
        self._newest = sequence
        self._round = now_round
        self._line.hear(now_round)
        self._heard = True
        self._noted = None
        return Acceptance(lost)

    def _leap(self, now_round: int) -> int:
        return min(LEAP + self._line.missed(self._round, now_round), MOST_LEAP)

    def _discard(self, behind: int) -> Refusal:
        if self._heard and (behind >= WINDOW or self._came >> behind & 1):
            return self._replayed()
        if behind < WINDOW:
            self._came |= 1 << behind
        return Refusal.LATE

    def _replayed(self) -> Refusal:
        self._line.replayed += 1
        return Refusal.REPLAYED


class Numbering:
    """The numbers of all limits between one limiter and its peers."""

    def __init__(self) -> None:
        self.sessions = 0
        """How many there were, with all peers."""
        self._lines: dict[str, Line] = {}
        self._peers: dict[str, dict[int, Sequences]] = {}

    def line(self, peer: str) -> Line:
        """What those of one peer have in common."""
        line = self._lines.get(peer)
        if line is None:
            line = self._lines[peer] = Line()
        return line

    def of(self, peer: str, limit_id: int) -> Sequences:
        """Those of one limit, always the same ones."""
        limits = self._peers.setdefault(peer, {})
        sequences = limits.get(limit_id)
        if sequences is None:
            sequences = limits[limit_id] = Sequences(self.line(peer))
        return sequences

    def meet(self, peer: str) -> None:
        """A session with another life of the peer begins."""
        self.sessions += 1
        self.line(peer).session = self.sessions

    def met_since(self, session: int) -> list[str]:
        """Peers whose present session is later than this one."""
        return [peer for peer, line in self._lines.items() if line.session > session]

    def retain(self, peers: Collection[str]) -> None:
        """Forget all others: if one comes back, it will be met."""
        for peer in self._lines.keys() - set(peers):
            del self._lines[peer]
            self._peers.pop(peer, None)
