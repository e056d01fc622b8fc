"""The membership of a tree: a limiter's parent, its children, and the number of limiters.

Theory of operation. A limiter has one parent, chosen by itself among the peers of lower rank
(`fabrics.tree_ranks`), and as children those that say that it is their parent. It tells them, and
hardly anybody else, something in each round. An update says what the receiver is to its sender
(`Role`), and how many limiters are counted in it:

    to the parent   this limiter and all below it
    to a child      all but those below that child

so that each limiter knows how many there are without a record of each. A sender that does not hear
the receiver says so, and nothing else in the update counts.

Being told that one is a child confirms a parent, being told that one is the parent confirms a
child. In intervals since the last time, with h the number of bits of N:

    11        SILENT: the limiters behind it are counted no more
    12        LOST: a child takes another parent
    26 + 2 h  what they want is counted no more

The number of limiters decides which part of the limit is in force, what they want how it is
divided; so the first goes first (docs/conservative-rule.md). It falls when it has been lower for
6 + h intervals, for the orphans of a dead limiter have found another parent by then, and counts
when it has been higher for 8 + 2 h (`Membership.rise_ns`): the news of how much there is to share
may not overtake that of who shares it. 11 updates in a row are lost twice in 10^8 at 20 % loss,
four times in 10^5 at 40 %. The demand of an orphan counts twice for a while, once through its lost
parent and once through the new one: the limit is not exceeded, and not all of it is used.

Looking for a parent. The best candidate is asked in each round while it is not the parent. When it
comes back, its former children rejoin it once it knows at least as many limiters as their parent
does: a limiter that has just returned may have no parent itself. A limiter that does not hear its
parent also asks the second and the next `branching` candidates. A limiter answers in its next round
if it is asked, if it is the parent of one that does not hear it, or if it is taken for a child
while all is steady. A candidate that is heard, and hears, becomes the parent. The old one is told
for 1 + h rounds more what a parent is told, as the new one has to tell it on; then that it is the
parent no more.

Start. For 4 intervals after it has met its first peers a limiter says that it hears none, and
listens: its children of before a restart go on, and it must not report a sum without theirs.

Partition. The lowest rank of a part cannot find a parent, and becomes its root; parts become one
when it hears a lower rank again.

Invariants: a limiter's parent has a lower rank and its children have higher ones. So sums go round
in no circle, whatever limiters believe. Each limiter is counted at most once by its parent.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass
from random import Random

from drld.gossip.fabrics.member_bridge import MemberBridge
from drld.gossip.fabrics.membership import Membership
from drld.gossip.fabrics.tree_ranks import Role, candidates, rank
from drld.gossip.fabrics.tree_update import TreeUpdate
from drld.model import HEARTBEAT, Quantity

SILENT = 11
"""Intervals without being confirmed for which the limiters behind a neighbour are counted."""
LOST = 12
"""Intervals without being confirmed after which another parent is taken."""


@dataclass(frozen=True, slots=True)
class Count:
    """The number of limiters that a neighbour counted, and when it said so."""

    members: int
    said_ns: int


class TreeMembership(Membership):
    """What a limiter knows of its place in the tree."""

    def __init__(
        self, name: str, peers: Collection[str], fanout: int | None, interval_ns: int
    ) -> None:
        """A limiter's parent is preferred by about `fanout` limiters."""
        self._preferring = fanout
        self._silent_ns = SILENT * interval_ns
        self._lost_ns = LOST * interval_ns
        super().__init__(name, peers, None, interval_ns)

    def _begin(self) -> None:
        super()._begin()
        self.parent: str | None = None
        self._children: dict[str, Count] = {}
        self._rest: Count | None = None
        """All that are not below this limiter."""
        self._known_at_home = 0
        """How many limiters the best candidate knows of."""
        self._confirmed_until_ns = 0
        """When to look for another parent, if this one confirms nothing more."""
        self._former: dict[str, int] = {}
        """Former parents, and when they became that."""
        self._lost: dict[str, int] = {}
        """Lost parents, and until when what they were told counts elsewhere."""
        self._asked: list[str] = []
        """Who is to be answered in the next round."""
        self._sought: list[str] = []
        """Who is asked in this round."""
        self._next_candidate = 0
        self._seeking = False
        self._bridge = MemberBridge(self.bridged_ns, self.interval_ns)
        self._dead: set[str] = set()
        """Whom it would be in vain to ask, by the verdict of probes."""
        self._began_ns: int | None = None
        self._looked_ns = -1
        self._heard_since = False

    def _size_up(self, peers: Collection[str]) -> None:
        super()._size_up(peers)
        interval_ns = self.interval_ns
        self.branching = max(1, min(self._preferring or len(peers), len(peers)))
        height = (len(peers) + 1).bit_length()
        self.rise_ns = (8 + 2 * height) * interval_ns
        self.counted_ns = (26 + 2 * height) * interval_ns
        """How long what a neighbour said counts."""
        self.bridged_ns = (6 + height) * interval_ns
        """How long a number of limiters must have been lower until it falls: by then orphans have
        found another parent."""
        self.told_twice_ns = (1 + height) * interval_ns
        """How long a new parent may not know of all, and the old one is told as well."""
        self._candidates = candidates(self.name, self.peers, self.branching)
        self._everybody = frozenset(self.peers)

    @property
    def forgotten_ns(self) -> int:
        """See `Membership`."""
        return self.counted_ns + self.interval_ns

    @property
    def detection_ns(self) -> int:
        """See `Membership`."""
        return self.counted_ns + self.rise_ns

    def set_peers(self, peers: Collection[str]) -> None:
        """See `Membership`."""
        home = self.home
        super().set_peers(peers)
        if self.parent not in self._peers:
            self.parent = self._rest = None
        if self.home != home:
            self._known_at_home = 0
        self._bridge = self._bridge.over(self.bridged_ns)
        self._dead &= self._peers.keys()
        self._asked = [peer for peer in self._asked if peer in self._peers]
        self._sought = [peer for peer in self._sought if peer in self._peers]
        self._children = {k: v for k, v in self._children.items() if k in self._peers}
        self._former = {k: v for k, v in self._former.items() if k in self._peers}
        self._lost = {k: v for k, v in self._lost.items() if k in self._peers}

    def neighbours(self) -> list[str]:
        """See `Membership`: the children, and the parents that count this limiter."""
        own = [] if self.parent is None else [self.parent]
        return list(dict.fromkeys([*self._children, *self._former, *own]))

    def targets(self, rng: Random) -> list[str]:  # noqa: ARG002 -- of the interface
        """Parent, children, peers that have asked, and possible parents; each once."""
        self._sought = list(self._candidates[:1])
        living: Sequence[str] = self._candidates
        if self._seeking and self._dead:
            living = [peer for peer in living if peer not in self._dead] or living
        if self._seeking and living:
            self._sought += living[:2]
            for _ in range(self.branching):
                self._next_candidate = (self._next_candidate + 1) % len(living)
                self._sought.append(living[self._next_candidate])
        told = [*self._children, *self._former, *self._sought, *self._asked]
        if self.parent is not None:
            told.append(self.parent)
        self._asked = []
        return list(dict.fromkeys(told))

    def declare(self, peer: str, gone: bool) -> None:
        """See `Membership`."""
        (self._dead.add if gone else self._dead.discard)(peer)

    def take(self, peer: str, update: TreeUpdate, now_ns: int) -> None:
        """See `Membership`."""
        super().take(peer, update, now_ns)
        self._heard_since = True
        role = update.role
        if role is Role.CANDIDATE or (role is Role.PARENT and not update.hears):
            self._asked.append(peer)
        if role in (Role.NONE, Role.CHILD):
            self._children.pop(peer, None)
        if not update.hears:
            return
        said_ns = self.arrived_ns(now_ns)
        count = Count(min(update.members, len(self.peers)), said_ns)
        if role is Role.CHILD and peer == self.parent:
            self._rest = count
            self._confirmed_until_ns = said_ns + self._lost_ns
        if role is not Role.CHILD and peer == self.home:
            self._known_at_home = count.members
        if role is Role.PARENT and rank(peer) > rank(self.name):
            self._children[peer] = count
        strange = peer not in {self.parent, *self._former, *self._lost}
        if role is Role.CHILD and strange and self._steady:
            # Tell the peer that it is not the parent: an update that said so was forged.
            self._asked.append(peer)

    @property
    def home(self) -> str:
        """The best candidate, or nothing."""
        return self._candidates[0] if self._candidates else ""

    def heartbeat(self, peer: str, now_ns: int) -> TreeUpdate:
        """See `Membership`."""
        role = self.role(peer, now_ns)
        hears = self.hears(peer, now_ns)
        members = 0
        if hears:
            members = self._members(now_ns)
            if role is Role.PARENT:
                members = self._below(now_ns)
            elif role is Role.CHILD:
                members = max(1, members - self.child_members(peer, now_ns))
        return TreeUpdate(
            limit_id=HEARTBEAT,
            sequence=self._heartbeat_link(peer).sequences.take(),
            quantity=Quantity.RATE,
            hears=hears,
            value=0.0,
            role=role,
            members=members,
        )

    def role(self, peer: str, now_ns: int) -> Role:
        """What a peer is to this limiter."""
        if peer == self.parent:
            return Role.PARENT
        if peer in self._children:
            return Role.CHILD
        since_ns = self._former.get(peer)
        if since_ns is not None and now_ns - since_ns <= self.told_twice_ns:
            return Role.PARENT
        return Role.CANDIDATE if peer in self._sought else Role.NONE

    def on_session(self, peer: str, now_ns: int) -> Collection[int]:
        """See `Membership`; a peer that is met while this limiter listens said nothing before."""
        if self._listening(now_ns):
            self._began_ns = now_ns
        return super().on_session(peer, now_ns)

    def parents(self, now_ns: int) -> list[str]:
        """The peers that are told what a parent is told."""
        former = self.former(now_ns)
        return former if self.parent is None else [self.parent, *former]

    def former(self, now_ns: int) -> list[str]:
        """Former parents that are told the same for a while."""
        return [peer for peer in self._former if self.role(peer, now_ns) is Role.PARENT]

    def hears(self, peer: str, now_ns: int) -> bool:
        """Whether to tell a peer that this limiter hears it."""
        return not self._listening(now_ns) and self.fresh(peer, now_ns)

    def _listening(self, now_ns: int) -> bool:
        return self._began_ns is None or now_ns - self._began_ns < self.timeouts.fresh_ns

    @property
    def children(self) -> Collection[str]:
        """The peers that say that this limiter is their parent."""
        return self._children.keys()

    def child_members(self, child: str, now_ns: int) -> int:
        """How many are below a child, itself included; none, if it is silent."""
        count = self._children[child]
        return 0 if self.silent(count.said_ns, now_ns) else count.members

    def rest_members(self, now_ns: int) -> int:
        """How many are not below this limiter, as far as its parent knows."""
        rest = self._rest
        return 0 if rest is None or self.silent(rest.said_ns, now_ns) else rest.members

    def silent(self, said_ns: int, now_ns: int) -> bool:
        """Whether the limiters of a neighbour that spoke then are counted no more."""
        return now_ns - said_ns > self._silent_ns

    def _below(self, now_ns: int) -> int:
        """How many are below this limiter, itself included."""
        return 1 + sum(self.child_members(child, now_ns) for child in self._children)

    def _members(self, now_ns: int) -> int:
        """How many limiters there are, this one included."""
        return min(self._below(now_ns) + self.rest_members(now_ns), len(self.peers) + 1)

    def connected(self, now_ns: int) -> frozenset[str]:
        """All peers, or where some are missing those that this limiter hears of itself.

        `unnamed` says how many more are connected in that case.
        """
        if now_ns == self._looked_ns and not self._heard_since:
            return self._connected
        self._look(now_ns)
        members = self._bridge.update(now_ns, self._members(now_ns), self._members)
        connected, unnamed = self.named(members - 1, now_ns)
        # Equal sets of thousands of names take long to compare, and mostly they are the same one.
        same = connected is self._connected or connected == self._connected
        changed = not same or unnamed != self.unnamed
        if changed:
            self._connected = connected
            self.unnamed = unnamed
        self._note_change(changed, now_ns)
        return self._connected

    def steady(self, now_ns: int) -> bool:
        """See `Membership`; and nobody has fallen silent."""
        return super().steady(now_ns) and self._bridge.settled

    def named(
        self, others: int, now_ns: int, without: Set[str] = frozenset()
    ) -> tuple[frozenset[str], int]:
        """The names of so many connected peers, as far as known here, and how many more."""
        if others >= len(self.peers):
            return self._everybody, 0
        family = [child for child in self._children if self.child_members(child, now_ns)]
        if self.parent is not None and self.rest_members(now_ns):
            family.append(self.parent)
        named = frozenset([peer for peer in sorted(family) if peer not in without][:others])
        return named, others - len(named)

    def _look(self, now_ns: int) -> None:
        """Forget the peers that are gone, and attach to the right parent."""
        self._looked_ns = now_ns
        self._heard_since = False
        if self._began_ns is None:
            self._began_ns = now_ns
            # The best candidate first.
            self._confirmed_until_ns = now_ns + self._lost_ns
        oldest_ns = now_ns - self.counted_ns
        for child in [name for name, it in self._children.items() if it.said_ns < oldest_ns]:
            del self._children[child]
        oldest_ns = now_ns - self.told_twice_ns - self._lost_ns
        for former in [name for name, since_ns in self._former.items() if since_ns < oldest_ns]:
            del self._former[former]
        for lost in [name for name, until_ns in self._lost.items() if until_ns < now_ns]:
            del self._lost[lost]
        content = now_ns <= self._confirmed_until_ns
        sought = self._candidates
        if content:
            knows_all = self._known_at_home >= self.rest_members(now_ns)
            sought = sought[: 1 if knows_all else 0]
        ready = next((peer for peer in sought if self.both_ways(peer, now_ns)), None)
        if ready is not None and (ready != self.parent or not content):
            self._attach(ready, content, now_ns)
        self._seeking = not (
            content if self.parent is None else self.both_ways(self.parent, now_ns)
        )

    def _attach(self, parent: str, content: bool, now_ns: int) -> None:
        old = self.parent
        if old is not None and old != parent:
            if content:
                self._former[old] = now_ns
            else:
                self._lost[old] = now_ns + self.counted_ns
        self._lost.pop(parent, None)
        self._former.pop(parent, None)
        self.parent = parent
        # It has to hear of it first.
        self._confirmed_until_ns = now_ns + 2 * self._lost_ns
