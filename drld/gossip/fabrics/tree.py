"""A tree of sums: the total of all, exact, at 2 (N - 1) / N updates for each limiter.

Aggregation trees are those of Astrolabe (van Renesse, Birman, Vogels 2003) and SDIMS (Yalagandula,
Dahlin 2004). The paper defers "structured approaches" to future work (section 3.1).

Theory of operation. `fabrics.tree_membership` gives a limiter a parent and children. It tells

    its parent    own value + what its children told it: the sum below it
    each child    own value + what the other children and the parent told it: all the rest

and what it believes the others want is the sum of what children and parent told it last. Both
numbers come with the number of limiters that they are of, so that the limit in force always fits
the sum.

Loss. An update carries a whole sum and replaces the one before, so that a lost one makes the sum
older and never wrong; one that comes late or twice has an old sequence number. An own change counts
once and at once, as `remote` never contains the own value.

Death. A new parent may have heard of nobody yet, or have been in another tree. So what the lost one
told is the least that counts, for as long as it would have counted (`TreeMembership.counted_ns`).
After a change of parents of one's own will it is so until the new one has heard, and both parents
are told until all know of the new one's report (`TreeMembership.told_twice_ns`).

News. Where rounds are further apart than estimates, a sum that has changed by more than `NEWS` of
the total since it was told is told at the next estimate. A change travels on only as far as it
changes the sums of others by as much.

Quiescence, as in a mesh: a limiter that believes the total to be zero for `QUIET_ROUNDS` sends no
more. A sum that is not repeated for as long as its sender may be silent counts zero.

A neighbour that means another quantity by the limit is left out of the sums and of the connected
limiters, and so are the limiters behind it.

Invariants: with demands that do not change and a tree that does not, every limiter's total is the
sum of the demands, to within 2**-24 a hop; no limiter's value is in what it is told of the rest,
while no limiter changes its parent; an idle fleet is exactly zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from drld.gossip.fabrics.base import Fabric
from drld.gossip.fabrics.link import Link
from drld.gossip.fabrics.member_bridge import MemberBridge
from drld.gossip.fabrics.quiescence import Quiescence
from drld.gossip.fabrics.tree_membership import TreeMembership
from drld.gossip.fabrics.tree_ranks import Role
from drld.gossip.fabrics.tree_update import TREE, TreeUpdate
from drld.gossip.wire.update_codec import MAX_VALUE, to_float32
from drld.model import GlobalView

NEWS = 0.01
"""Part of the total by which a sum has changed that is told between two rounds."""


class Sum(NamedTuple):
    """A sum, as a neighbour told it."""

    value: float
    members: int
    said_ns: int


@dataclass(slots=True)
class _Neighbour(Link):
    """A peer, what it told last as the parent or a child, and which sum it was told last."""

    told: Sum | None = None
    said: float = 0.0


class Tree(Fabric[_Neighbour]):
    """To the parent and the children."""

    kind = TREE.kind
    memberships = TreeMembership
    link_type = _Neighbour
    membership: TreeMembership

    def _begin(self) -> None:
        self._told: tuple[str, Sum] | None = None
        """What the parent told last, or the one before it."""
        self._before: Sum | None = None
        """What the one before it told last."""
        self._before_until_ns = 0
        """Until when that is the least that counts."""
        self._quiescence = Quiescence()
        self._bridge = MemberBridge(self.membership.bridged_ns, self.membership.interval_ns)
        self._size_up()

    def _size_up(self) -> None:
        """Set what depends on the number of peers."""
        height = (len(self.membership.peers) + 1).bit_length()
        self._news_ns = (1 + height) * self.membership.interval_ns

    @property
    def news_ns(self) -> int:
        """See `Fabric.news_ns`: up and down the tree, half an interval a hop."""
        return self._news_ns

    @property
    def quiet(self) -> bool:
        """See `Fabric.quiet`."""
        return self._quiescence.quiet and self._bridge.settled

    def publish(
        self, value: float, targets: Sequence[str], now_ns: int
    ) -> list[tuple[str, TreeUpdate]]:
        """Tell the parent and the children among the targets."""
        if not self._quiescence.speaks(wanted=bool(value) or self._quiescence.others_want):
            return []
        sums = self._sums(value, self._children(now_ns), self._parent(now_ns), now_ns)
        told = []
        for peer in targets:
            role = self.membership.role(peer, now_ns)
            if role is Role.PARENT or role is Role.CHILD:
                told.append((peer, self._update(peer, role, sums.get(peer))))
        return told

    def pressing(self, value: float, now_ns: int) -> bool:
        """See `Fabric`."""
        children, rest = self._children(now_ns), self._parent(now_ns)
        total = value + sum(told.value for told in children.values()) + rest.value
        return any(
            abs(told.value - self._link(peer).said) > NEWS * total
            for peer, told in self._sums(value, children, rest, now_ns).items()
        )

    def receive(self, peer: str, update: TreeUpdate, now_ns: int) -> None:
        """Keep a sum if it is the newest of its teller."""
        if update.quantity is not self.quantity:
            self._reject(peer, update, now_ns)
            return
        membership, link = self.membership, self._link(peer)
        if self._accept(peer, link, update, now_ns) is None or not update.hears:
            return
        self._quiescence.others_want |= update.value != 0
        said_ns = membership.arrived_ns(now_ns)
        told = Sum(update.value, min(update.members, len(membership.peers)), said_ns)
        if update.role is Role.PARENT:
            link.told = told
        elif update.role is Role.CHILD:
            if peer == membership.parent:
                if self._told is not None and self._told[0] != peer:
                    self._keep(self._told[0], now_ns)
                self._told = peer, told
            elif self._told is not None and self._told[0] == peer:
                self._told = peer, told

    def _keep(self, old: str, now_ns: int) -> None:
        """What a former parent told is the least that counts."""
        membership = self.membership
        self._before = before = self._parent(now_ns)
        left = old in membership.former(now_ns)
        until_ns = (
            now_ns + membership.told_twice_ns if left else before.said_ns + membership.counted_ns
        )
        self._before_until_ns = max(self._before_until_ns, until_ns)

    def view(self, now_ns: int) -> GlobalView:
        """The sum of what children and parent told; its age is that of the oldest in it."""
        membership = self.membership
        membership.connected(now_ns)
        known = self._known(now_ns)
        remote = sum(told.value for told in known)
        self._quiescence.others_want = remote > 0
        members = self._bridge.update(now_ns, _members(known), self._members_at)
        connected, unnamed = membership.named(members, now_ns, without=self._strangers)
        said_ns = min((told.said_ns for told in known if told.value), default=None)
        age_ns = membership.age_ns(now_ns) if said_ns is None else now_ns - said_ns
        return GlobalView(remote, connected, age_ns if connected else None, unnamed)

    def told(self, now_ns: int) -> dict[str, tuple[float, int]]:
        """See `Fabric.told`: a child told the sum below it, the parent the sum of all the rest."""
        told = self._children(now_ns)
        if self.membership.parent is not None:
            told[self.membership.parent] = self._parent(now_ns)
        return {peer: (it.value, it.members) for peer, it in told.items() if it.members or it.value}

    def set_peers(self) -> None:
        """See `Fabric.set_peers`."""
        super().set_peers()
        self._quiescence.others_want = True
        self._bridge = self._bridge.over(self.membership.bridged_ns)
        self._size_up()

    def _sums(
        self, value: float, children: Mapping[str, Sum], rest: Sum, now_ns: int
    ) -> dict[str, Sum]:
        """What there is to tell to whom of those that are heard."""
        membership = self.membership
        below = Sum(
            value + sum(told.value for told in children.values()),
            1 + sum(told.members for told in children.values()),
            now_ns,
        )
        sums = {
            child: Sum(
                # A difference of floats may come out below zero.
                max(0.0, below.value - told.value + rest.value),
                below.members - told.members + rest.members,
                now_ns,
            )
            for child, told in children.items()
            if membership.hears(child, now_ns)
        }
        for parent in membership.parents(now_ns):
            if membership.hears(parent, now_ns):
                sums[parent] = below
        return sums

    def _known(self, now_ns: int) -> list[Sum]:
        """What children and parent told."""
        return [*self._children(now_ns).values(), self._parent(now_ns)]

    def _members_at(self, now_ns: int) -> int:
        """How many limiters they counted."""
        return _members(self._known(now_ns))

    def _children(self, now_ns: int) -> dict[str, Sum]:
        """What each child told."""
        membership = self.membership
        return {
            child: self._counted(
                None if (link := self._links.get(child)) is None else link.told,
                membership.child_members(child, now_ns),
                now_ns,
            )
            for child in membership.children
            if child not in self._strangers
        }

    def _parent(self, now_ns: int) -> Sum:
        """What the parent told."""
        membership = self.membership
        if membership.parent is None or membership.parent in self._strangers:
            return Sum(0.0, 0, now_ns)
        told = None if self._told is None else self._told[1]
        rest = self._counted(told, membership.rest_members(now_ns), now_ns)
        if told is None or rest.said_ns != told.said_ns:
            return rest
        if self._before is not None and now_ns <= self._before_until_ns:
            rest = rest._replace(value=max(rest.value, self._before.value))
        return rest

    def _counted(self, told: Sum | None, members: int, now_ns: int) -> Sum:
        """What counts of what was told: first the limiters count no more, then what they want.

        `members` are counted where the limit is not spoken of.
        """
        membership = self.membership
        if told is None or now_ns - told.said_ns > membership.counted_ns:
            return Sum(0.0, members, now_ns)
        if membership.silent(told.said_ns, now_ns):
            return told._replace(members=members)
        return told

    def _update(self, peer: str, role: Role, told: Sum | None) -> TreeUpdate:
        """An update with a sum; None: we do not hear the peer."""
        link = self._link(peer)
        link.said = 0.0 if told is None else told.value
        members = 0 if told is None else told.members
        return TreeUpdate(
            limit_id=self.limit_id,
            sequence=link.sequences.take(),
            quantity=self.quantity,
            hears=told is not None,
            value=to_float32(min(link.said, MAX_VALUE)),
            role=role,
            members=min(members, len(self.membership.peers) + 1),
        )


def _members(known: Iterable[Sum]) -> int:
    return sum(told.members for told in known)
