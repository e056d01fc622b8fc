"""A tree of sums: the total of all, exact, at 2 (N - 1) / N updates for each limiter.

Paper, section 3.1: "More sophisticated communication fabrics may reduce coordination costs using
structured approaches; we defer an investigation to future work." This is one; aggregation trees are
those of Astrolabe (van Renesse, Birman, Vogels 2003) and SDIMS (Yalagandula, Dahlin 2004).

Theory of operation. `drld.gossip.tree_membership` gives a limiter a parent and children. It tells

    its parent    own value + what its children told it: the sum below it
    each child    own value + what the other children and the parent told it: all the rest

and what it believes the others want is the sum of what children and parent told it last. Both
numbers come with the number of limiters that they are of (the weight of the update), so that the
limit in force always fits the sum.

Loss. An update carries an absolute sum and replaces the one before, so that a lost one makes the
sum older and never wrong; one that comes late or twice has an old sequence number. There is no mass
that has to be kept, given back or rounded, and nothing to remember over a restart. The total is
known exactly as many rounds after the last change as there are hops between two limiters, lost
updates and paths longer than an interval added. An own change counts once and at once, as `remote`
never contains the own value.

Death. What is known of those behind a dead limiter stands still until they have found another
parent, 12 intervals and a round later. Then they are counted twice, and it shows, as there are more
than there can be: what was said longer than 4 intervals ago counts in part, so that there are as
many as there can be. What is left of it is the mean of those behind the dead one in its place,
until what it said counts no more. The membership has the times.

News. Where rounds are further apart than estimates, a sum that has changed by more than `NEWS` of
the total since it was told is told at the next estimate, so that a round is for small changes and
for showing that one lives. It stirs up others only as far as it changes what they have to say.

Rest, as in a mesh: who believes the total to be zero for `QUIET_ROUNDS` falls silent, and a sum
that is not repeated for as long as its teller may be silent counts zero.

A neighbour that means another quantity by the limit is left out, with those behind it, and counted
out.

On the wire the epoch is the receiver's `Role`, the value the sum, the weight the number of limiters
in it; a weight of zero, "I do not hear you", as in all fabrics.

Invariants: with demands that do not change and a tree that does not, every limiter's total is the
sum of the demands, to within 2**-24 a hop; no limiter's value is in what it is told of the rest,
while nobody changes his parent; an idle fleet is exactly zero.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from drld.gossip.base import QUIET_ROUNDS, Fabric
from drld.gossip.link import Link
from drld.gossip.membership import Membership
from drld.gossip.tree_membership import Role, TreeMembership
from drld.gossip.wire import MAX_VALUE, to_float32
from drld.model import GlobalView, Update

NEWS = 0.01
"""Part of the total by which a sum has changed that is told between two rounds."""


class Sum(NamedTuple):
    """What a neighbour told."""

    value: float
    members: float
    said_ns: int


class _Neighbour(Link):
    """A peer, what it told last as the parent or a child, and which sum it was told last."""

    __slots__ = ("said", "told")

    def __init__(self) -> None:
        super().__init__()
        self.told: Sum | None = None
        self.said = 0.0


class Tree(Fabric[_Neighbour]):
    """To the parent and the children."""

    membership: TreeMembership

    @staticmethod
    def fanout(branching: int) -> int | None:
        """So many, on average."""
        return branching

    @classmethod
    def make_membership(
        cls, name: str, peers: Collection[str], branching: int, interval_ns: int
    ) -> Membership:
        """See `Fabric`."""
        return TreeMembership(name, peers, branching, interval_ns)

    def _begin(self) -> None:
        self._rest: Sum | None = None
        """What the parent told last, or the one before it."""
        self._zeros = QUIET_ROUNDS
        """Rounds in which the own value was zero."""
        self._others_want = False
        """Whether there was a remote demand at the last view, or may be since."""

    def _new_link(self) -> _Neighbour:
        return _Neighbour()

    @property
    def quiet(self) -> bool:
        """See `Fabric.quiet`."""
        return self._zeros >= QUIET_ROUNDS and not self._others_want

    def publish(
        self, value: float, targets: Sequence[str], now_ns: int
    ) -> list[tuple[str, Update]]:
        """Tell the parent and the children among the targets."""
        if value or self._others_want:
            self._zeros = 0
        elif self._zeros < QUIET_ROUNDS:
            self._zeros += 1
        else:
            return []
        membership = self.membership
        children, rest = self._known(now_ns)
        told = []
        for peer in targets:
            role = membership.role(peer, now_ns)
            if role in (Role.NONE, Role.CANDIDATE):
                continue
            sums = [child for name, child in children.items() if name != peer]
            if role is Role.CHILD:
                sums.append(rest)
            known = membership.hears(peer, now_ns)
            told.append((peer, self._update(peer, role, value, sums if known else None)))
        return told

    def pressing(self, value: float, now_ns: int) -> bool:
        """See `Fabric`."""
        children = dict(self._children(now_ns))
        below = value + sum(told.value for told in children.values())
        total = below + self._parent(now_ns).value
        sums = {child: total - told.value for child, told in children.items()}
        if self.membership.parent is not None:
            sums[self.membership.parent] = below
        return any(abs(told - self._link(peer).said) > NEWS * total for peer, told in sums.items())

    def receive(self, peer: str, update: Update, now_ns: int) -> None:
        """Keep a sum if it is the newest of its teller."""
        if update.quantity is not self.quantity or update.value < 0:
            self._reject(peer, update)
            return
        link = self._link(peer)
        if self._accept(peer, link, update, now_ns) is None or update.weight == 0:
            return
        self._others_want |= update.value > 0
        told = Sum(update.value, min(update.weight, len(self.membership.peers)), now_ns)
        if update.epoch == Role.PARENT:
            link.told = told
        elif update.epoch == Role.CHILD and peer == self.membership.parent:
            self._rest = told

    def view(self, now_ns: int) -> GlobalView:
        """The sum of what children and parent told; its age is that of the oldest in it."""
        membership = self.membership
        membership.connected(now_ns)
        children, rest = self._known(now_ns)
        known = [*children.values(), rest]
        remote = sum(told.value for told in known)
        self._others_want = remote > 0
        members = round(sum(told.members for told in known))
        connected, unnamed = membership.named(members, now_ns, without=self._strangers)
        said_ns = min((told.said_ns for told in known if told.value), default=None)
        age_ns = membership.age_ns(now_ns) if said_ns is None else now_ns - said_ns
        return GlobalView(remote, connected, age_ns if connected else None, unnamed)

    def reconfigure(self, membership: Membership) -> None:
        """See `Fabric.reconfigure`."""
        super().reconfigure(membership)
        self._others_want = True

    def _known(self, now_ns: int) -> tuple[dict[str, Sum], Sum]:
        """What children and parent told, and of old sums no more than there are limiters."""
        children, rest = dict(self._children(now_ns)), self._parent(now_ns)
        members = len(self.membership.peers)
        excess = sum(told.members for told in children.values()) + rest.members - members
        if excess <= 0:
            return children, rest
        since_ns = now_ns - self.membership.timeouts.fresh_ns
        old = sum(told.members for told in (*children.values(), rest) if told.said_ns < since_ns)
        part = max(0.0, 1 - excess / old) if old else 1.0

        def fitting(told: Sum) -> Sum:
            if told.said_ns >= since_ns:
                return told
            return told._replace(value=told.value * part, members=told.members * part)

        return {child: fitting(told) for child, told in children.items()}, fitting(rest)

    def _children(self, now_ns: int) -> Iterator[tuple[str, Sum]]:
        """What each child told."""
        membership = self.membership
        for child in membership.children:
            if child in self._strangers:
                continue
            link = self._links.get(child)
            told = None if link is None else link.told
            if told is None or now_ns - told.said_ns > membership.counted_ns:
                told = Sum(0.0, membership.child_members(child), now_ns)
            yield child, told

    def _parent(self, now_ns: int) -> Sum:
        """What the parent told."""
        membership, told = self.membership, self._rest
        members = membership.rest_members(now_ns)
        if not members or membership.parent in self._strangers:
            return Sum(0.0, 0, now_ns)
        if told is None or now_ns - told.said_ns > membership.held_ns:
            return Sum(0.0, members, now_ns)
        return told

    def _update(self, peer: str, role: Role, value: float, others: Sequence[Sum] | None) -> Update:
        """An update with the sum of the own value and others; None: we do not hear the peer."""
        link = self._link(peer)
        total = weight = 0.0
        if others is not None:
            total = value + sum(told.value for told in others)
            weight = 1.0 + sum(told.members for told in others)
        link.said = total
        return Update(
            limit_id=self.limit_id,
            sequence=link.take_sequence(),
            quantity=self.quantity,
            epoch=role,
            value=to_float32(min(total, MAX_VALUE)),
            weight=min(weight, len(self.membership.peers) + 1.0),
        )
