"""A membership in which all peers are always connected, for simulated fleets of thousands.

drld's own membership has a record of each peer: N in a daemon, and N**2 in a simulator. These have
no records. They report every peer as connected, and do not notice a death. The targets of a round
are different random peers, or the family in a tree.
"""
# ruff: noqa: ARG002 -- a membership that knows all needs few of the arguments of one that learns

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from random import Random
from typing import TypeAlias, cast

from drld.gossip.fabrics.membership import Membership
from drld.gossip.fabrics.pushsum import PushsumMembership
from drld.gossip.fabrics.pushsum_update import PushsumUpdate
from drld.gossip.fabrics.tree_membership import Count, TreeMembership
from drld.gossip.fabrics.tree_ranks import affinity, band, rank
from drld.gossip.fabrics.tree_update import TreeUpdate
from drld.model import HEARTBEAT, Quantity, Update


class Others(Set[str]):
    """All limiters but one."""

    __slots__ = ("_all", "_len", "_me")

    def __init__(self, everybody: Sequence[str], me: int) -> None:
        self._all = everybody
        self._me = me
        self._len = len(everybody) - 1

    def __len__(self) -> int:
        return self._len

    def __contains__(self, name: object) -> bool:
        return name != self._all[self._me]

    def __iter__(self) -> Iterator[str]:
        return (name for index, name in enumerate(self._all) if index != self._me)


class AllConnected(Membership):
    """All peers are connected, and have been for long."""

    def _know(self, everybody: Sequence[str], me: int) -> Others:
        others = Others(everybody, me)
        # Both are only used for their length, their items, and `in`.
        self.peers = cast(tuple[str, ...], others)
        self._all_connected = cast(frozenset[str], others)
        return others

    def connected(self, now_ns: int) -> frozenset[str]:
        """See `Membership`."""
        return self._all_connected

    def steady(self, now_ns: int) -> bool:
        """See `Membership`."""
        return True


class KnownMembership(AllConnected, PushsumMembership):
    """The membership of one limiter in push-sum, by its place among all."""

    def __init__(
        self, everybody: Sequence[str], me: int, fanout: int | None, interval_ns: int
    ) -> None:
        """`fanout` peers (None: all of them) get an update in each `interval_ns`."""
        super().__init__(everybody[me], (), fanout, interval_ns)
        self._everybody = everybody
        self._me = me
        others = self._know(everybody, me)
        self.branching = max(1, min(fanout or len(others), len(others)))

    def targets(self, rng: Random) -> list[str]:
        """See `Membership`."""
        others = len(self._everybody) - 1
        if self.branching >= others:
            return list(self.peers)
        picked = rng.sample(range(others), self.branching)
        return [self._everybody[index + (index >= self._me)] for index in picked]

    def heartbeat(self, peer: str, now_ns: int) -> PushsumUpdate:
        """See `Membership`; updates have no numbers, as none can be missed."""
        return PushsumUpdate(HEARTBEAT, 0, Quantity.RATE, True, 0.0, epoch=0, weight=0.0)

    def receive(self, peer: str, update: Update, now_ns: int) -> None:
        """See `Membership`."""
        self._heard_ns = now_ns

    def hear(self, peer: str, hears_us: bool, now_ns: int) -> None:
        """See `Membership`."""
        self._heard_ns = now_ns

    def fresh(self, peer: str, now_ns: int) -> bool:
        """See `Membership`."""
        return True

    def both_ways(self, peer: str, now_ns: int) -> bool:
        """See `Membership`."""
        return True


Family: TypeAlias = tuple[str | None, list[str]]
"""Parent and children."""


def families(everybody: Sequence[str], branching: int) -> Mapping[str, Family]:
    """Each limiter's family, if all have their best candidate as the parent."""
    by_rank = sorted(everybody, key=rank)
    ranks = [rank(name)[0] for name in by_rank]
    parents: dict[str, str | None] = {}
    children: defaultdict[str, list[str]] = defaultdict(list)
    for place, name in enumerate(by_rank):
        least, most = band(name, branching)
        preferred = by_rank[bisect_left(ranks, least) : bisect_left(ranks, most)]
        # As `candidates`, of which only the first is wanted.
        parent = min(preferred or by_rank[:place], key=affinity(name), default=None)
        parents[name] = parent
        if parent is not None:
            children[parent].append(name)
    return {name: (parents[name], children[name]) for name in everybody}


class KnownTree(AllConnected, TreeMembership):
    """The membership of one limiter of a tree, by its place among all."""

    def __init__(
        self,
        everybody: Sequence[str],
        me: int,
        family: Family,
        interval_ns: int,
    ) -> None:
        """`family` is one of `families`."""
        super().__init__(everybody[me], (), None, interval_ns)
        self._know(everybody, me)
        self.parent, children = family
        self._children = dict.fromkeys(children, Count(1, 0))
        self._heartbeats_sent = 0

    def targets(self, rng: Random) -> list[str]:
        """See `Membership`."""
        return [*self._children] if self.parent is None else [self.parent, *self._children]

    def heartbeat(self, peer: str, now_ns: int) -> TreeUpdate:
        """See `Membership`; all peers share one counter."""
        self._heartbeats_sent += 1
        role = self.role(peer, now_ns)
        return TreeUpdate(
            HEARTBEAT, self._heartbeats_sent, Quantity.RATE, True, 0.0, role, members=1
        )

    def receive(self, peer: str, update: TreeUpdate, now_ns: int) -> None:
        """See `Membership`."""
        self.take(peer, update, now_ns)

    def take(self, peer: str, update: TreeUpdate, now_ns: int) -> None:
        """See `Membership`."""
        self._heard_ns = now_ns

    def hears(self, peer: str, now_ns: int) -> bool:
        """See `TreeMembership`."""
        return True

    def rest_members(self, now_ns: int) -> int:
        """See `TreeMembership`; has no effect."""
        return 1

    def named(
        self,
        others: int,
        now_ns: int,
        without: Set[str] = frozenset(),
    ) -> tuple[frozenset[str], int]:
        """See `TreeMembership`."""
        return self._all_connected, 0
