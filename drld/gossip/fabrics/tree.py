"""A tree of sums: each limiter knows the exact total, for 2 (N - 1) / N updates a round.

Aggregation trees are those of Astrolabe (van Renesse, Birman, Vogels 2003) and SDIMS (Yalagandula,
Dahlin 2004). The paper defers "structured approaches" to future work (section 3.1).

Theory of operation. `fabrics.tree_membership` gives a limiter a parent and children. It sends

    to its parent    its own value + the children's sums: the sum below it
    to each child    its own value + the other children's sums + the parent's sum: all the rest

The remote demand is the sum of the newest values from parent and children. Each sum comes with the
number of limiters in it, so that the limit in force always fits the sum.

Loss. An update carries a whole sum and replaces the one before. A lost update makes a sum older,
never wrong. One that comes late or twice has an old sequence number. A change of the own value
counts at once and once, because `remote` never contains it.

Another parent. The new parent may not know all limiters yet, or may have been in another tree. So
the last sum of a lost parent is the least that counts, for as long as it would have counted
(`TreeMembership.counted_ns`). If the parent was left for a better one, its last sum is the least
that counts for `TreeMembership.overlap_ns`. Both parents get this limiter's sum for that time. Both
rules are needed: without the first, a death made the local limits sum to 1.60 of the limit
(tests/sim/test_failures.py). Without the second, the sum was up to 1.23 in 5 of 40 random cuts.

News. Rounds may be longer than a limit's estimate interval. A sum that has changed by more than
`NEWS` of the total since it was sent is sent at the next estimate. A change travels only as far as
it changes sums by that much.

Quiescence, as in a mesh: a limiter that believes a total of zero for `QUIET_ROUNDS` stops sending.
A sum that is not repeated while its sender may be silent counts zero.

A neighbour that sends another quantity for the limit is left out of the sums and of the connected
limiters, with all limiters behind it.

Invariants: while demands and the tree stay the same, every limiter's total is the sum of the
demands, to within 2**-24 a hop. While no limiter changes its parent, no limiter receives its own
value in a sum. An idle fleet believes exactly zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from drld.gossip.fabrics.base import Fabric
from drld.gossip.fabrics.link import Link
from drld.gossip.fabrics.quiescence import Quiescence
from drld.gossip.fabrics.tree_membership import TreeMembership
from drld.gossip.fabrics.tree_ranks import Role
from drld.gossip.fabrics.tree_update import TREE, TreeUpdate
from drld.gossip.wire.update_codec import MAX_VALUE, to_float32
from drld.model import GlobalView

NEWS = 0.01
"""Part of the total: a sum that has changed by more is sent between two rounds."""


class Sum(NamedTuple):
    """The sum that a neighbour sent."""

    value: float
    members: int
    """The number of limiters in the sum."""
    arrived_ns: int
    """The earliest time at which its update may have arrived."""


@dataclass(slots=True)
class _Neighbour(Link):
    """A peer and the sums between it and this limiter."""

    received_sum: Sum | None = None
    """The peer's newest sum as a child."""
    sent: float = 0.0
    """The value of the sum that this limiter sent last."""


class Tree(Fabric[_Neighbour]):
    """The tree, for one limit."""

    kind = TREE.kind
    memberships = TreeMembership
    passes_on = True
    link_type = _Neighbour
    membership: TreeMembership

    def _begin(self) -> None:
        self._rest: tuple[str, Sum] | None = None
        """The newest sum from the parent, and its sender; a new parent may not have sent one."""
        self._least_rest: Sum | None = None
        """The last sum from the parent before it."""
        self._least_rest_until_ns = 0
        """Time until which that sum is the least that counts."""
        self._quiescence = Quiescence()
        self._sums_count = False
        """Whether a sum counted limiters at the last view; else the membership alone did."""
        self._set_news_ns()

    def _set_news_ns(self) -> None:
        height = (len(self.membership.peers) + 1).bit_length()
        self._news_ns = (1 + height) * self.membership.interval_ns

    @property
    def news_ns(self) -> int:
        """See `Fabric.news_ns`: up and down the tree, half an interval a hop."""
        return self._news_ns

    @property
    def quiet(self) -> bool:
        """See `Fabric.quiet`."""
        return self._quiescence.quiet and not self._sums_count

    def publish(
        self, value: float, targets: Sequence[str], now_ns: int
    ) -> list[tuple[str, TreeUpdate]]:
        """See `Fabric.publish`: the parents and children among the targets get a sum."""
        if not self._quiescence.speaks(wanted=bool(value) or self._quiescence.others_want):
            return []
        sums = self._sums(value, self._children(now_ns), self._parent(now_ns), now_ns)
        updates = []
        for peer in targets:
            role = self.membership.role(peer, now_ns)
            if role is Role.PARENT or role is Role.CHILD:
                updates.append((peer, self._update(peer, role, sums.get(peer))))
        return updates

    def pressing(self, value: float, now_ns: int) -> bool:
        """See `Fabric.pressing`."""
        children, rest = self._children(now_ns), self._parent(now_ns)
        total = value + sum(child.value for child in children.values()) + rest.value
        return any(
            abs(it.value - self._link(peer).sent) > NEWS * total
            for peer, it in self._sums(value, children, rest, now_ns).items()
        )

    def receive(self, peer: str, update: TreeUpdate, now_ns: int) -> None:
        """See `Fabric.receive`: the newest sum of its sender replaces the one before."""
        if update.quantity is not self.quantity:
            self._reject(peer, update, now_ns)
            return
        membership, link = self.membership, self._link(peer)
        if self._accept(peer, link, update, now_ns) is None or not update.hears:
            return
        self._quiescence.others_want |= update.value != 0
        arrived_ns = membership.arrived_ns(now_ns)
        received = Sum(update.value, min(update.members, len(membership.peers)), arrived_ns)
        if update.role is Role.PARENT:
            link.received_sum = received
        elif update.role is Role.CHILD:
            last = None if self._rest is None else self._rest[0]
            if peer == membership.parent:
                if last is not None and last != peer:
                    self._keep_rest(last, now_ns)
                self._rest = peer, received
            elif peer == last:
                self._rest = peer, received

    def _keep_rest(self, old: str, now_ns: int) -> None:
        """Make the last sum of the parent before, `old`, the least that counts for a while."""
        membership = self.membership
        self._least_rest = last = self._parent(now_ns)
        was_left = old in membership.former_parents(now_ns)
        until_ns = (
            now_ns + membership.overlap_ns if was_left else last.arrived_ns + membership.counted_ns
        )
        self._least_rest_until_ns = max(self._least_rest_until_ns, until_ns)

    def view(self, now_ns: int) -> GlobalView:
        """See `Fabric.view`; its age is that of the oldest sum in it."""
        membership = self.membership
        membership.connected(now_ns)
        known = [*self._children(now_ns).values(), self._parent(now_ns)]
        remote = sum(it.value for it in known)
        self._quiescence.others_want = remote > 0
        received = [link.received_sum for link in self._links.values()]
        received.append(None if self._rest is None else self._rest[1])
        self._sums_count = any(
            it is not None and not membership.silent(it.arrived_ns, now_ns) for it in received
        )
        members = sum(it.members for it in known)
        connected, unnamed = membership.named(members, now_ns, without=self._strangers)
        arrived_ns = min((it.arrived_ns for it in known if it.value), default=None)
        age_ns = membership.age_ns(now_ns) if arrived_ns is None else now_ns - arrived_ns
        return GlobalView(remote, connected, age_ns if connected else None, unnamed)

    def told(self, now_ns: int) -> dict[str, tuple[float, int]]:
        """See `Fabric.told`: the sum below each child, and the parent's sum of all the rest."""
        sums = self._children(now_ns)
        if self.membership.parent is not None:
            sums[self.membership.parent] = self._parent(now_ns)
        return {peer: (it.value, it.members) for peer, it in sums.items() if it.members or it.value}

    def set_peers(self) -> None:
        """See `Fabric.set_peers`."""
        super().set_peers()
        self._quiescence.others_want = True
        self._set_news_ns()

    def _sums(
        self, value: float, children: Mapping[str, Sum], rest: Sum, now_ns: int
    ) -> dict[str, Sum]:
        """The sum for each parent and child that this limiter hears."""
        membership = self.membership
        below = Sum(
            value + sum(child.value for child in children.values()),
            1 + sum(child.members for child in children.values()),
            now_ns,
        )
        sums = {
            child: Sum(
                # A difference of floats may come out below zero.
                max(0.0, below.value - it.value + rest.value),
                below.members - it.members + rest.members,
                now_ns,
            )
            for child, it in children.items()
            if membership.hears(child, now_ns)
        }
        for parent in membership.parents(now_ns):
            if membership.hears(parent, now_ns):
                sums[parent] = below
        return sums

    def _children(self, now_ns: int) -> dict[str, Sum]:
        """The sum from each child."""
        membership = self.membership
        return {
            child: self._counted(
                None if (link := self._links.get(child)) is None else link.received_sum,
                membership.child_members(child, now_ns),
                now_ns,
            )
            for child in membership.children
            if child not in self._strangers
        }

    def _parent(self, now_ns: int) -> Sum:
        """The sum from the parent."""
        membership = self.membership
        if membership.parent is None or membership.parent in self._strangers:
            return Sum(0.0, 0, now_ns)
        received = None if self._rest is None else self._rest[1]
        rest = self._counted(received, membership.rest_members(now_ns), now_ns)
        if received is None or rest.arrived_ns != received.arrived_ns:
            return rest
        if self._least_rest is not None and now_ns <= self._least_rest_until_ns:
            rest = rest._replace(value=max(rest.value, self._least_rest.value))
        return rest

    def _counted(self, received: Sum | None, members: int, now_ns: int) -> Sum:
        """The part of a received sum that counts: its limiters go first, its demand later.

        `members` is the number that the neighbour counts in updates of other limits. It holds where
        the neighbour sends no updates of this limit.
        """
        membership = self.membership
        if received is None or now_ns - received.arrived_ns > membership.counted_ns:
            return Sum(0.0, members, now_ns)
        if membership.silent(received.arrived_ns, now_ns):
            return received._replace(members=members)
        return received

    def _update(self, peer: str, role: Role, sent: Sum | None) -> TreeUpdate:
        """An update with a sum; None if this limiter does not hear the peer."""
        link = self._link(peer)
        link.sent = 0.0 if sent is None else sent.value
        members = 0 if sent is None else sent.members
        return TreeUpdate(
            limit_id=self.limit_id,
            sequence=link.sequences.take(),
            quantity=self.quantity,
            hears=sent is not None,
            value=to_float32(min(link.sent, MAX_VALUE)),
            role=role,
            members=min(members, len(self.membership.peers) + 1),
        )
