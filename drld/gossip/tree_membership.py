"""The membership of a tree: whom a limiter reports to, who reports to it, how many there are.

Theory of operation. A limiter has one parent, chosen by itself among the peers of lower rank
(`drld.gossip.kinship`), and as children those that say that it is their parent. It tells them, and
hardly anybody else, something in each round: 2 (N - 1) / N updates for each limiter of a fleet of
N. The epoch of an update says what the receiver is to its sender (`Role`), its weight how many
limiters are counted in it:

    to the parent   this limiter and all below it
    to a child      all but those below that child

so that each limiter knows how many there are without a record of each. Whose weight is zero does
not hear its receiver; nothing else in the update counts.

Being told that one is a child confirms a parent. In intervals since the last time, with h = log2 N:

    12   LOST: the limiter takes another parent
    24   HELD: what the parent said counts no more
    30 + h   what a child said counts no more

Nobody is connected when nobody has said for 24 intervals that he hears the limiter, or for 17 while
somebody is heard who could have said so. So those that are cut off have shrunk before their shares
are taken by the rest: it takes 4 intervals until who does not hear says so, and h rounds until all
below know. And a dead limiter's datapath has fallen back after 20 intervals (docs/operations.md).
Of orphans that find another parent at once, which is the rule, the fleet counts too many for a
while, and not too few. 12 updates in a row are lost once in 10^8 at 20 % loss, once in 10^5 at 40
%.

Looking for a parent. The best candidate is asked in each round while it is not the parent, so that
a limiter goes back to it when it can; one that does not hear its parent also asks the next
`branching` candidates. Who is asked, or is the parent of one that does not hear it, answers in its
next round. A candidate that is heard, and hears, becomes the parent. The old one is told for
another round what a parent is told, as the new one has to tell it on; then that it is the parent no
more.

Start. For 4 intervals after it has met the first ones a limiter says that it hears nobody, and
listens: those whose parent it was before a restart go on, and it must not report a sum without
theirs.

Partition. The lowest rank of a part cannot find a parent, and becomes its root; parts become one
when it hears a lower rank again.

Invariants: a limiter's parent has a lower rank, its children have higher ones, so that whoever
believes what, sums go round in no circle; each limiter is counted at most once by its parent.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass
from random import Random

from drld.gossip.kinship import candidates, rank
from drld.gossip.membership import Membership
from drld.model import Update

LOST = 12
"""Intervals without being confirmed after which another parent is taken."""
HELD = 24
"""Intervals for which what the parent said counts."""


class Role(enum.IntEnum):
    """What the receiver of an update is to its sender; the epoch on the wire."""

    NONE = 0
    PARENT = 1
    CHILD = 2
    CANDIDATE = 3
    """It may become the parent, and is asked whether it is there."""


@dataclass(frozen=True, slots=True)
class Count:
    """How many limiters somebody counted, and when it said so."""

    members: int
    said_ns: int


class TreeMembership(Membership):
    """What a limiter knows of its place in the tree."""

    def __init__(
        self, name: str, peers: Collection[str], fanout: int | None, interval_ns: int
    ) -> None:
        """A limiter's parent is preferred by about `fanout` limiters."""
        super().__init__(name, peers, None, interval_ns)
        self._fanout = fanout
        self.branching = max(1, min(fanout or len(peers), len(peers)))
        height = len(peers).bit_length()
        self.held_ns = HELD * interval_ns
        """How long what the parent said counts."""
        self.counted_ns = (HELD + 6 + height) * interval_ns
        """How long what a child said counts."""
        self.parent: str | None = None
        self._lost_ns = LOST * interval_ns
        self._told_twice_ns = interval_ns
        self._candidates = candidates(name, self.peers, self.branching)
        self._everybody = frozenset(self.peers)
        self._children: dict[str, Count] = {}
        self._rest: Count | None = None
        """All that are not below this limiter."""
        self._confirmed_until_ns = 0
        """When to look for another parent, if this one confirms nothing more."""
        self._former: dict[str, int] = {}
        """Former parents, and when they became that."""
        self._asked: list[str] = []
        """Who is to be answered in the next round."""
        self._sought: list[str] = []
        """Who is asked in this round."""
        self._next_candidate = 0
        self._seeking = False
        self._acknowledged_ns: int | None = None
        """When anybody said that he hears us."""
        self._began_ns: int | None = None
        self._looked_ns = -1
        self._heard_since = False

    def with_peers(self, peers: Collection[str]) -> TreeMembership:
        """See `Membership`."""
        changed = TreeMembership(self.name, peers, self._fanout, self.interval_ns)
        self._hand_over(changed)
        changed._began_ns = self._began_ns
        changed._acknowledged_ns = self._acknowledged_ns
        changed._rest = self._rest
        changed._confirmed_until_ns = self._confirmed_until_ns
        changed.parent = self.parent if self.parent in changed._peers else None
        changed._children = {k: v for k, v in self._children.items() if k in changed._peers}
        changed._former = {k: v for k, v in self._former.items() if k in changed._peers}
        return changed

    def targets(self, rng: Random) -> list[str]:  # noqa: ARG002 -- of the interface
        """The family, who has asked, and whoever may become the parent; nobody twice."""
        self._sought = list(self._candidates[:1])
        # Who has died is not asked in vain; what probes say of a neighbour counts for nothing here.
        living: Sequence[str] = self._candidates
        if self._seeking and self._gone:
            living = [peer for peer in living if peer not in self._gone] or living
        if self._seeking and living:
            for _ in range(self.branching):
                self._next_candidate = (self._next_candidate + 1) % len(living)
                self._sought.append(living[self._next_candidate])
        told = [*self._children, *self._former, *self._sought, *self._asked]
        if self.parent is not None:
            told.append(self.parent)
        self._asked = []
        return list(dict.fromkeys(told))

    def take(self, peer: str, update: Update, now_ns: int) -> None:
        """See `Membership`."""
        super().take(peer, update, now_ns)
        self._heard_since = True
        if update.epoch == Role.CANDIDATE or (update.epoch == Role.PARENT and not update.weight):
            self._asked.append(peer)
        if update.epoch != Role.PARENT:
            self._children.pop(peer, None)
        if update.weight == 0:
            return
        self._acknowledged_ns = now_ns
        count = Count(max(1, round(min(update.weight, len(self.peers)))), now_ns)
        if update.epoch == Role.CHILD and peer == self.parent:
            self._rest = count
            self._confirmed_until_ns = now_ns + self._lost_ns
        if update.epoch == Role.PARENT and rank(peer) > rank(self.name):
            self._children[peer] = count

    def heartbeat(self, peer: str, now_ns: int) -> Update:
        """See `Membership`."""
        role = self.role(peer, now_ns)
        counted = 0
        if self.hears(peer, now_ns):
            counted = 1
            if role is Role.PARENT:
                counted = self.below
            elif role is Role.CHILD:
                counted = max(1, self.members(now_ns) - self._children[peer].members)
        return self._heartbeat(peer, role, float(counted))

    def role(self, peer: str, now_ns: int) -> Role:
        """What a peer is to this limiter."""
        if peer == self.parent:
            return Role.PARENT
        if peer in self._children:
            return Role.CHILD
        since_ns = self._former.get(peer)
        if since_ns is not None and now_ns - since_ns <= self._told_twice_ns:
            return Role.PARENT
        return Role.CANDIDATE if peer in self._sought else Role.NONE

    def meet(self, peer: str, now_ns: int) -> None:
        """See `Membership`; who is met while this limiter listens has said nothing before."""
        super().meet(peer, now_ns)
        if self._listening(now_ns):
            self._began_ns = now_ns

    def hears(self, peer: str, now_ns: int) -> bool:
        """Whether to say so."""
        return not self._listening(now_ns) and self.fresh(peer, now_ns)

    def _listening(self, now_ns: int) -> bool:
        return self._began_ns is None or now_ns - self._began_ns < self.timeouts.fresh_ns

    @property
    def children(self) -> Collection[str]:
        """Who says that this limiter is its parent."""
        return self._children.keys()

    def child_members(self, child: str) -> int:
        """How many are below a child, itself included."""
        return self._children[child].members

    @property
    def below(self) -> int:
        """How many are below this limiter, itself included."""
        return 1 + sum(child.members for child in self._children.values())

    def rest_members(self, now_ns: int) -> int:
        """How many are not below this limiter, as far as its parent knows."""
        rest = self._rest
        return 0 if rest is None or now_ns - rest.said_ns > self.held_ns else rest.members

    def members(self, now_ns: int) -> int:
        """How many limiters there are, this one included."""
        return min(self.below + self.rest_members(now_ns), len(self.peers) + 1)

    def connected(self, now_ns: int) -> frozenset[str]:
        """All peers, or where some are missing those that this limiter hears of itself.

        `unnamed` says how many more are connected in that case.
        """
        if now_ns == self._looked_ns and not self._heard_since:
            return self._connected
        self._look(now_ns)
        connected, unnamed = self.named(self.members(now_ns) - 1, now_ns)
        changed = connected != self._connected or unnamed != self.unnamed
        if changed:
            self._connected = connected
            self.unnamed = unnamed
        self._note_change(changed, now_ns)
        return self._connected

    def named(
        self, others: int, now_ns: int, without: Set[str] = frozenset()
    ) -> tuple[frozenset[str], int]:
        """The names of so many connected peers, as far as known here, and how many more."""
        if others >= len(self.peers):
            return self._everybody, 0
        family = self._children.keys() - without
        if self.parent is not None and self.rest_members(now_ns):
            family |= {self.parent} - without
        return frozenset(family), max(0, others - len(family))

    def _look(self, now_ns: int) -> None:
        """Forget who is gone, and see to having the right parent."""
        self._looked_ns = now_ns
        self._heard_since = False
        if self._began_ns is None:
            self._began_ns = now_ns
            # The best candidate first.
            self._confirmed_until_ns = now_ns + self._lost_ns
        oldest_ns = now_ns - self.counted_ns
        for child in [name for name, it in self._children.items() if it.said_ns < oldest_ns]:
            del self._children[child]
        if self._acknowledged_ns is None or now_ns - self._acknowledged_ns > (
            self.timeouts.denial_ns if self._hears_anybody(now_ns) else self.held_ns
        ):
            self._children.clear()
            self._rest = None
        if self._cut_off:
            self._children.clear()
            self._rest = None
        oldest_ns = now_ns - self._told_twice_ns - self._lost_ns
        for former in [name for name, since_ns in self._former.items() if since_ns < oldest_ns]:
            del self._former[former]
        content = now_ns <= self._confirmed_until_ns
        sought = self._candidates[:1] if content else self._candidates
        ready = next((peer for peer in sought if self.both_ways(peer, now_ns)), None)
        if ready is not None and (ready != self.parent or not content):
            self._attach(ready, now_ns)
        self._seeking = not (
            content if self.parent is None else self.both_ways(self.parent, now_ns)
        )

    def _hears_anybody(self, now_ns: int) -> bool:
        return self._heard_ns is not None and now_ns - self._heard_ns <= self.timeouts.fresh_ns

    def _attach(self, parent: str, now_ns: int) -> None:
        if self.parent is not None and self.parent != parent:
            self._former[self.parent] = now_ns
        self._former.pop(parent, None)
        self.parent = parent
        # It has to hear of it first.
        self._confirmed_until_ns = now_ns + 2 * self._lost_ns
