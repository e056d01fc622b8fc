"""The membership of a tree: a limiter's parent, its children, and the number of limiters.

Theory of operation. A limiter chooses one *parent* among the peers of lower rank
(`fabrics.tree_ranks`). Its *children* are the peers that say that it is their parent. In each round
it sends updates to its parent and children, and to few other peers. An update says what the
receiver is to the sender (`Role`), and how many limiters it counts:

    to the parent   the sender and all limiters below it
    to a child      all limiters but those below that child

So a limiter knows the number of limiters without a record of each. If the sender does not hear the
receiver, the update says so, and its other fields do not count. An update with the role `CHILD`
confirms a parent; one with the role `PARENT` confirms a child.

State of a neighbour, by the time since its last confirmation, in intervals. h is the number of bits
of N.

    12        LOST: a child takes another parent
    17 + h    silent: the limiters behind it no longer count
    26 + 2 h  the demand behind it no longer counts

The number of limiters decides which part of the limit is in force, and the demand how it is
divided. So the number goes first (docs/conservative-rule.md). Before that, orphans have had 5 + h
intervals to be counted through other parents. They count twice meanwhile, but not for long enough
to matter. A higher number counts after 8 + 2 h intervals (`Membership.rise_ns`), because every
limiter must know the demand before any limiter uses the shares. At 20 % loss, 12 updates in a row
are lost four times in 10^9; at 40 %, twice in 10^5.

Parents. A limiter asks its best candidate in each round until that is its parent. When a parent
comes back, it may have no parent itself. So its former children rejoin it only once it knows at
least as many limiters as their current parent. A limiter that does not hear its parent also asks
the second candidate, and the next `branching` ones. A limiter answers in its next round if a peer
asks it, if a child does not hear it, or if a peer takes it for a child by mistake. A candidate that
hears this limiter, and is heard, becomes the parent. A parent that was left for a better one still
gets a parent's updates for 1 + h rounds, until the new parent has passed them on. Later updates say
that it is no longer the parent.

Start. For 4 intervals after its first sessions a limiter says that it hears no peer, and listens.
Its children from before a restart continue; it must not report a sum without theirs.

Partition. The lowest rank of a part finds no parent and becomes the root of the part. Parts join
when it hears a lower rank again.

Invariants: a limiter's parent has a lower rank, and its children have higher ranks. So no sum goes
round in a circle, whatever limiters believe. A parent counts each limiter at most once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass
from random import Random

from drld.gossip.fabrics.membership import Membership
from drld.gossip.fabrics.tree_ranks import Role, candidates, rank
from drld.gossip.fabrics.tree_update import TreeUpdate
from drld.model import HEARTBEAT, Quantity

LOST = 12
"""Intervals without a confirmation after which a limiter takes another parent."""


@dataclass(frozen=True, slots=True)
class Count:
    """The number of limiters that a neighbour counted."""

    members: int
    arrived_ns: int
    """The earliest time at which the update with this number may have arrived."""


class TreeMembership(Membership):
    """The peers of a limiter in a tree, and its place there."""

    def __init__(
        self, name: str, peers: Collection[str], fanout: int | None, interval_ns: int
    ) -> None:
        """About `fanout` limiters prefer this one as their parent."""
        self._fanout_wanted = fanout
        self._lost_ns = LOST * interval_ns
        super().__init__(name, peers, None, interval_ns)

    def _begin(self) -> None:
        super()._begin()
        self.parent: str | None = None
        self._children: dict[str, Count] = {}
        """The children, and how many limiters each counts below itself, itself included."""
        self._rest: Count | None = None
        """The limiters that are not below this one, as the parent counts them."""
        self._best_knows = 0
        """The number of limiters that the best candidate counts."""
        self._confirmed_until_ns = 0
        """Time at which the parent is lost, if it confirms nothing more."""
        self._former_parents: dict[str, int] = {}
        """Parents that this limiter left for better ones, and the time of that, ns."""
        self._lost_parents: dict[str, int] = {}
        """Lost parents, each with the time until which other limiters may count this limiter's last
        sum to it, ns."""
        self._to_answer: list[str] = []
        """The peers to answer in the next round."""
        self._to_ask: list[str] = []
        """The candidates that are asked in this round."""
        self._next_candidate = 0
        self._seeking = False
        """Whether the parent is missing, or not heard."""
        self._dead: set[str] = set()
        """The peers that the probes found dead, or that have left."""
        self._listening_since_ns: int | None = None
        self._looked_ns = -1
        self._heard_since = False
        """Whether an update has come since the last look."""

    def _set_sizes(self, peers: Collection[str]) -> None:
        super()._set_sizes(peers)
        interval_ns = self.interval_ns
        self.branching = max(1, min(self._fanout_wanted or len(peers), len(peers)))
        height = (len(peers) + 1).bit_length()
        self.rise_ns = (8 + 2 * height) * interval_ns
        self._silent_ns = (17 + height) * interval_ns
        """The time after its last confirmation for which the limiters behind a neighbour count."""
        self.counted_ns = (26 + 2 * height) * interval_ns
        """The time after its last confirmation for which the demand behind a neighbour counts."""
        self.overlap_ns = (1 + height) * interval_ns
        """The time for which a former parent still gets a parent's updates."""
        self._candidates = candidates(self.name, self.peers, self.branching)
        self._all_peers = frozenset(self.peers)

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
        best = self._best_candidate
        super().set_peers(peers)
        if self.parent not in self._peers:
            self.parent = self._rest = None
        if self._best_candidate != best:
            self._best_knows = 0
        known = self._peers
        self._dead &= known.keys()
        self._to_answer = [peer for peer in self._to_answer if peer in known]
        self._to_ask = [peer for peer in self._to_ask if peer in known]
        self._children = {k: v for k, v in self._children.items() if k in known}
        self._former_parents = {k: v for k, v in self._former_parents.items() if k in known}
        self._lost_parents = {k: v for k, v in self._lost_parents.items() if k in known}

    def neighbours(self) -> list[str]:
        """See `Membership`: the children, and the parents that count this limiter."""
        own = [] if self.parent is None else [self.parent]
        return list(dict.fromkeys([*self._children, *self._former_parents, *own]))

    def targets(self, rng: Random) -> list[str]:  # noqa: ARG002 -- a tree draws nothing
        """The parent, children, peers that have asked, and possible parents; each once."""
        self._to_ask = list(self._candidates[:1])
        living: Sequence[str] = self._candidates
        if self._seeking and self._dead:
            living = [peer for peer in living if peer not in self._dead] or living
        if self._seeking and living:
            self._to_ask += living[:2]
            for _ in range(self.branching):
                self._next_candidate = (self._next_candidate + 1) % len(living)
                self._to_ask.append(living[self._next_candidate])
        targets = [*self._children, *self._former_parents, *self._to_ask, *self._to_answer]
        if self.parent is not None:
            targets.append(self.parent)
        self._to_answer = []
        return list(dict.fromkeys(targets))

    def declare(self, peer: str, gone: bool) -> None:
        """See `Membership`: an orphan does not ask a peer that is gone."""
        (self._dead.add if gone else self._dead.discard)(peer)

    def take(self, peer: str, update: TreeUpdate, now_ns: int) -> None:
        """See `Membership`."""
        super().take(peer, update, now_ns)
        self._heard_since = True
        role = update.role
        if role is Role.CANDIDATE or (role is Role.PARENT and not update.hears):
            self._to_answer.append(peer)
        if role in (Role.NONE, Role.CHILD):
            self._children.pop(peer, None)
        if not update.hears:
            return
        arrived_ns = self.arrived_ns(now_ns)
        count = Count(min(update.members, len(self.peers)), arrived_ns)
        if role is Role.CHILD and peer == self.parent:
            self._rest = count
            self._confirmed_until_ns = arrived_ns + self._lost_ns
        if role is not Role.CHILD and peer == self._best_candidate:
            self._best_knows = count.members
        if role is Role.PARENT and rank(peer) > rank(self.name):
            self._children[peer] = count
        no_parent = peer not in {self.parent, *self._former_parents, *self._lost_parents}
        if role is Role.CHILD and no_parent and self._steady:
            # The peer takes this limiter for a child, because of a forged update. Correct it.
            self._to_answer.append(peer)

    @property
    def _best_candidate(self) -> str:
        """The peer that this limiter prefers as its parent; empty if it is the lowest rank."""
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
        """The role of a peer towards this limiter."""
        if peer == self.parent:
            return Role.PARENT
        if peer in self._children:
            return Role.CHILD
        left_ns = self._former_parents.get(peer)
        if left_ns is not None and now_ns - left_ns <= self.overlap_ns:
            return Role.PARENT
        return Role.CANDIDATE if peer in self._to_ask else Role.NONE

    def on_session(self, peer: str, now_ns: int) -> Collection[int]:
        """See `Membership`. Each session during the start makes this limiter listen longer."""
        if self._listening(now_ns):
            self._listening_since_ns = now_ns
        return super().on_session(peer, now_ns)

    def parents(self, now_ns: int) -> list[str]:
        """The peers that get a parent's updates."""
        former = self.former_parents(now_ns)
        return former if self.parent is None else [self.parent, *former]

    def former_parents(self, now_ns: int) -> list[str]:
        """The former parents that still get a parent's updates."""
        return [peer for peer in self._former_parents if self.role(peer, now_ns) is Role.PARENT]

    def hears(self, peer: str, now_ns: int) -> bool:
        """Whether updates to a peer say that this limiter hears it."""
        return not self._listening(now_ns) and self.fresh(peer, now_ns)

    def _listening(self, now_ns: int) -> bool:
        since_ns = self._listening_since_ns
        return since_ns is None or now_ns - since_ns < self.timeouts.fresh_ns

    def fresh(self, peer: str, now_ns: int) -> bool:
        """See `Membership`; an update that a frozen daemon finds in its socket counts as old.

        Its sender may have died since. If that were heard, an orphan would take its lost parent
        again, for two times `LOST`.
        """
        heard = self._peers[peer]
        if heard.heard_ns is None or heard.arrived_ns is None:
            return False
        heard_ns = min(heard.heard_ns, heard.arrived_ns + self.interval_ns)
        return now_ns - heard_ns <= self.timeouts.fresh_ns

    @property
    def children(self) -> Collection[str]:
        """The peers that say that this limiter is their parent."""
        return self._children.keys()

    def child_members(self, child: str, now_ns: int) -> int:
        """The number of limiters below a child, itself included; 0 if it is silent."""
        count = self._children[child]
        return 0 if self.silent(count.arrived_ns, now_ns) else count.members

    def rest_members(self, now_ns: int) -> int:
        """The number of limiters not below this one, as its parent counts; 0 if that is silent."""
        rest = self._rest
        return 0 if rest is None or self.silent(rest.arrived_ns, now_ns) else rest.members

    def silent(self, arrived_ns: int, now_ns: int) -> bool:
        """Whether the limiters behind a neighbour with its last confirmation then do not count."""
        return now_ns - arrived_ns > self._silent_ns

    def _below(self, now_ns: int) -> int:
        """The number of limiters below this one, itself included."""
        return 1 + sum(self.child_members(child, now_ns) for child in self._children)

    def _members(self, now_ns: int) -> int:
        """The number of limiters in the tree, this one included."""
        return min(self._below(now_ns) + self.rest_members(now_ns), len(self.peers) + 1)

    def connected(self, now_ns: int) -> frozenset[str]:
        """The connected peers: all; or if some are missing, the connected neighbours.

        If some are missing, `unnamed` is the number of the other connected peers.
        """
        if now_ns == self._looked_ns and not self._heard_since:
            return self._connected
        self._look(now_ns)
        connected, unnamed = self.named(self._members(now_ns) - 1, now_ns)
        # To compare equal sets of thousands of names takes long. Mostly it is the same set.
        same = connected is self._connected or connected == self._connected
        changed = not same or unnamed != self.unnamed
        if changed:
            self._connected = connected
            self.unnamed = unnamed
        self._note_change(changed, now_ns)
        return self._connected

    def named(
        self, others: int, now_ns: int, without: Set[str] = frozenset()
    ) -> tuple[frozenset[str], int]:
        """The names of `others` connected peers, as far as known here, and how many more.

        `without` are neighbours that do not count.
        """
        if others >= len(self.peers):
            return self._all_peers, 0
        neighbours = [child for child in self._children if self.child_members(child, now_ns)]
        if self.parent is not None and self.rest_members(now_ns):
            neighbours.append(self.parent)
        named = frozenset([peer for peer in sorted(neighbours) if peer not in without][:others])
        return named, others - len(named)

    def _look(self, now_ns: int) -> None:
        """Forget neighbours that are gone, and attach to the right parent."""
        self._looked_ns = now_ns
        self._heard_since = False
        if self._listening_since_ns is None:
            self._listening_since_ns = now_ns
            # The best candidate has so long to answer, before any other is taken.
            self._confirmed_until_ns = now_ns + self._lost_ns
        oldest_ns = now_ns - self.counted_ns
        self._children = {k: v for k, v in self._children.items() if v.arrived_ns >= oldest_ns}
        # Updates say for LOST more intervals that a former parent is no longer the parent.
        oldest_ns = now_ns - self.overlap_ns - self._lost_ns
        self._former_parents = {k: v for k, v in self._former_parents.items() if v >= oldest_ns}
        self._lost_parents = {k: v for k, v in self._lost_parents.items() if v >= now_ns}
        attached = now_ns <= self._confirmed_until_ns
        eligible = self._candidates
        if attached:
            worthy = self._best_knows >= self.rest_members(now_ns)
            eligible = eligible[: 1 if worthy else 0]
        ready = next((peer for peer in eligible if self.both_ways(peer, now_ns)), None)
        if ready is not None and (ready != self.parent or not attached):
            self._attach(ready, attached, now_ns)
        parent = self.parent
        self._seeking = not (attached if parent is None else self.both_ways(parent, now_ns))

    def _attach(self, parent: str, attached: bool, now_ns: int) -> None:
        """Take a parent. The one before was left for it if `attached`; else it was lost."""
        old = self.parent
        if old is not None and old != parent:
            if attached:
                self._former_parents[old] = now_ns
            else:
                self._lost_parents[old] = now_ns + self.counted_ns
        self._lost_parents.pop(parent, None)
        self._former_parents.pop(parent, None)
        self.parent = parent
        # The new parent must first learn of it, so it gets twice the time to confirm.
        self._confirmed_until_ns = now_ns + 2 * self._lost_ns
