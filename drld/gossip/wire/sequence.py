"""The sequence numbers of one limit between two limiters: they show losses and repeated updates.

Paper, section 4.2: "the receiving limiter uses the sequence number to determine if an update is
lost, and if so, compensates by scaling the value and weight of the newest update".

Theory of operation. A sender counts the updates of one (sender, receiver, limit) triple from 0 in
each session (`drld.gossip.wire.session`), mod 2**32. Numbers are compared in serial arithmetic
(RFC 1982), so the wrap from 2**32 - 1 to 0 is a step of one. With `newest` the newest number
accepted, a number is

- accepted, if it is ahead of `newest` by d, at most the *maximum jump*: d - 1 updates are lost. The
  maximum jump is `MAX_JUMP`, plus one for each round since `newest` in which no update of the peer
  came, of any limit. It is at most `MAX_JUMP_AFTER_SILENCE`. (If the peer sent updates of other
  limits only, none of this limit can be lost.)
- pending, if it is further ahead. The next number is accepted if it is ahead of the pending one by
  at most the maximum jump; the pending one then counts as lost. The first pending number is
  `LATE`. A number that does not follow it is `REPLAYED`: an attacker that has held back an update
  can send it again and again, and hardly anything else causes this.
- discarded, if it is equal to `newest` or behind it. An update is only of use while it is the
  newest, and an overtaken one was already counted and compensated as lost. A discarded number is
  `LATE` the first time it comes. It is `REPLAYED` if it has come before, or is older than the last
  `WINDOW` numbers, which are remembered. A network causes late numbers, and a few replayed ones;
  only an attacker causes a thousand a second.

A tag of four bytes can be guessed (docs/security.md). A forged update keeps true ones out only
until the peer has sent `MAX_JUMP` of them, at one a round.

The first number of a session is judged as if the number before 0 had been accepted. It shows no
losses, because earlier updates had no session, or no limit here.

Numbers belong to the session and the limit's id, and outlive a limiter that a reload replaces. When
the session ends, all numbers that were used in it restart at 0 (`Numbering.meet`). So the end of a
session costs no more than its updates did.

Invariants: each number is accepted at most once in a session, unless 2**31 updates (half the
circle) have been sent since. From the first accepted one on, accepted + lost grow by exactly the
distance that the newest number moves.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection

MODULUS = 1 << 32
MAX_JUMP = 10
"""The most that a number may be ahead of one that came a round before. At rounds of 50 ms that is
0.5 s, less than the time after which a tree counts a peer out."""
MAX_JUMP_AFTER_SILENCE = 64
"""The most that a number may be ahead, however long ago the last one came."""
WINDOW = 64
"""The number of latest numbers that are remembered as received or not."""
_MASK = (1 << WINDOW) - 1


def serial_distance(number: int, reference: int) -> int:
    """The distance of `number` ahead of `reference`, from -2**31 to 2**31 - 1 (RFC 1982)."""
    half = MODULUS // 2
    return (number - reference + half) % MODULUS - half


class Refusal(enum.Enum):
    """The reason why an update is discarded."""

    LATE = enum.auto()
    """A newer update has come, or this one is too far ahead."""
    REPLAYED = enum.auto()
    """The update has come before, is older than `WINDOW`, or is the second too far ahead."""


class PeerSequence:
    """The state that the sequence numbers of all limits of one peer share."""

    __slots__ = ("_heard", "_round", "limits", "on_replay", "used")

    def __init__(self, on_replay: Callable[[], None] | None = None) -> None:
        self.limits: dict[int, Sequences] = {}
        """The numbers of each limit."""
        self.used: list[Sequences] = []
        """Those of `limits` that were used in the present session."""
        self.on_replay = on_replay
        """Called for each update of the peer that is refused as `REPLAYED`."""
        self._round = 0
        """The last round in which an update of the peer was accepted."""
        self._heard = 0
        """Bit i: an update was accepted in the round i before that."""

    def hear(self, now_round: int) -> None:
        """Record that an update of the peer was accepted."""
        if now_round != self._round:
            self._heard = self._heard_until(now_round) | 1
            self._round = now_round

    def missed(self, since_round: int, now_round: int) -> int:
        """The number of rounds between two without an update, of the last
        `MAX_JUMP_AFTER_SILENCE`."""
        looked_at = max(0, min(now_round - since_round - 1, MAX_JUMP_AFTER_SILENCE))
        heard = self._heard_until(now_round) >> 1 & (1 << looked_at) - 1
        return looked_at - heard.bit_count()

    def _heard_until(self, now_round: int) -> int:
        """The bits of a later round; none for an earlier round (a reload made rounds longer)."""
        later = now_round - self._round
        if not 0 <= later <= MAX_JUMP_AFTER_SILENCE:
            return 0
        return self._heard << later & (2 << MAX_JUMP_AFTER_SILENCE) - 1


class Sequences:
    """The sequence numbers of one limit between two limiters, in both directions."""

    __slots__ = (
        *("_came", "_heard", "_newest", "_next", "_peer", "_pending_jump", "_round", "_used"),
        "limit_id",
    )

    def __init__(self, peer: PeerSequence | None = None, limit_id: int = 0) -> None:
        self._peer = peer or PeerSequence()
        self.limit_id = limit_id
        self.restart()

    def restart(self) -> None:
        """Restart at 0, in both directions."""
        self._used = False
        """Whether it is in `PeerSequence.used`."""
        self._next = 0
        self._newest = MODULUS - 1
        self._came = 0
        """Bit i: the number i below the newest has come."""
        self._heard = False
        """Whether any number was accepted."""
        self._round = 0
        """The round in which the newest came."""
        self._pending_jump: int | None = None
        """The last number, if it was too far ahead."""

    def use(self) -> None:
        """Have `Numbering.meet` return this limit at the end of the present session."""
        if not self._used:
            self._used = True
            self._peer.used.append(self)

    def take(self) -> int:
        """The number of the next update to the peer."""
        self.use()
        sequence = self._next
        self._next = (sequence + 1) % MODULUS
        return sequence

    def accept(self, sequence: int, now_round: int = 0) -> int | Refusal:
        """Judge a number of the peer, 0 to 2**32 - 1, in this limiter's round `now_round`.

        Returns how many updates were lost between this one and the last, or why it is discarded.
        """
        self.use()
        ahead = serial_distance(sequence, self._newest)
        if ahead <= 0:
            return self._discard(-ahead)
        if ahead > MAX_JUMP and ahead > (max_jump := self._max_jump(now_round)):
            pending, self._pending_jump = self._pending_jump, sequence
            if pending is None:
                return Refusal.LATE
            if not 0 < serial_distance(sequence, pending) <= max_jump:
                return self._replayed()
        lost = ahead - 1 if self._heard else 0
        self._came = (self._came << ahead & _MASK if ahead < WINDOW else 0) | 1
        self._newest = sequence
        self._round = now_round
        self._peer.hear(now_round)
        self._heard = True
        self._pending_jump = None
        return lost

    def _max_jump(self, now_round: int) -> int:
        return min(MAX_JUMP + self._peer.missed(self._round, now_round), MAX_JUMP_AFTER_SILENCE)

    def _discard(self, behind: int) -> Refusal:
        if self._heard and (behind >= WINDOW or self._came >> behind & 1):
            return self._replayed()
        if behind < WINDOW:
            self._came |= 1 << behind
        return Refusal.LATE

    def _replayed(self) -> Refusal:
        if self._peer.on_replay is not None:
            self._peer.on_replay()
        return Refusal.REPLAYED


class Numbering:
    """The sequence numbers of all limits between one limiter and its peers."""

    def __init__(self, on_replay: Callable[[], None] | None = None) -> None:
        """`on_replay` is called for each update that is refused as `REPLAYED`."""
        self._on_replay = on_replay
        self._peers: dict[str, PeerSequence] = {}

    def of(self, peer: str, limit_id: int) -> Sequences:
        """The numbers of one limit and peer; always the same object."""
        shared = self._shared(peer)
        if limit_id not in shared.limits:
            shared.limits[limit_id] = Sequences(shared, limit_id)
        return shared.limits[limit_id]

    def meet(self, peer: str) -> list[int]:
        """Another life of the peer begins a session; return the limits used in the last one."""
        shared = self._shared(peer)
        used, shared.used = shared.used, []
        for sequences in used:
            sequences.restart()
        return [sequences.limit_id for sequences in used]

    def retain(self, peers: Collection[str]) -> None:
        """Forget all other peers; if one comes back, a session begins with it."""
        for peer in self._peers.keys() - set(peers):
            del self._peers[peer]

    def _shared(self, peer: str) -> PeerSequence:
        if peer not in self._peers:
            self._peers[peer] = PeerSequence(self._on_replay)
        return self._peers[peer]
