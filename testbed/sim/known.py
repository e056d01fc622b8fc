"""A membership in which all are known to be there: what a fleet of thousands costs to simulate.

drld's own membership keeps a record of each peer, which is nothing in a daemon and N**2 of them in
a simulator. This one keeps none. It says of every peer that it is connected, and picks the targets
of a round at random, all different; a death would not be noticed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from random import Random
from typing import cast

from drld.gossip.membership import Membership
from drld.model import HEARTBEAT, Quantity, Update


class Others(Set[str]):
    """Everybody but one."""

    __slots__ = ("_all", "_me")

    def __init__(self, everybody: Sequence[str], me: int) -> None:
        self._all = everybody
        self._me = me

    def __len__(self) -> int:
        return len(self._all) - 1

    def __contains__(self, name: object) -> bool:
        return name != self._all[self._me]

    def __iter__(self) -> Iterator[str]:
        return (name for index, name in enumerate(self._all) if index != self._me)


class KnownMembership(Membership):
    """The membership of one limiter, by its place among all."""

    def __init__(
        self, everybody: Sequence[str], me: int, fanout: int | None, interval_ns: int
    ) -> None:
        """`fanout` peers (None: all of them) are told something in each `interval_ns`."""
        super().__init__(everybody[me], (), fanout, interval_ns)
        others = Others(everybody, me)
        self._everybody = everybody
        self._me = me
        # Both are only asked for their length, who is in them, and who they are.
        self.peers = cast(tuple[str, ...], others)
        self._all_connected = cast(frozenset[str], others)
        self.branching = max(1, min(fanout or len(others), len(others)))

    def targets(self, rng: Random) -> list[str]:
        """See `Membership`."""
        others = len(self._everybody) - 1
        if self.branching >= others:
            return list(self.peers)
        picked = rng.sample(range(others), self.branching)
        return [self._everybody[index + (index >= self._me)] for index in picked]

    def heartbeat(self, peer: str, now_ns: int) -> Update:  # noqa: ARG002 -- of the interface
        """See `Membership`; they are not numbered, as none can be missed."""
        return Update(HEARTBEAT, 0, Quantity.RATE, 0, 0.0, 1.0)

    def receive(self, peer: str, update: Update, now_ns: int) -> None:  # noqa: ARG002
        """See `Membership`."""
        self._heard_ns = now_ns

    def hear(self, peer: str, hears_us: bool, now_ns: int) -> None:  # noqa: ARG002
        """See `Membership`."""
        self._heard_ns = now_ns

    def fresh(self, peer: str, now_ns: int) -> bool:  # noqa: ARG002
        """See `Membership`."""
        return True

    def both_ways(self, peer: str, now_ns: int) -> bool:  # noqa: ARG002
        """See `Membership`."""
        return True

    def connected(self, now_ns: int) -> frozenset[str]:  # noqa: ARG002
        """See `Membership`."""
        return self._all_connected

    def steady(self, now_ns: int) -> bool:  # noqa: ARG002
        """See `Membership`."""
        return True

    def heard_ns(self, peer: str) -> int | None:  # noqa: ARG002
        """When anybody was heard last."""
        return self._heard_ns
