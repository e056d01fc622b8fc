"""What a communication fabric does for one limit on one limiter.

A fabric is a pure state machine: time and randomness are arguments, datagrams are values.
It is fed decoded updates and the limiter's own shared value, and answers with the updates to
send and with what the rest of the fleet is believed to want. The `Membership`, which all limits
share, says which peers are connected, and which of them a round is for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from drld.gossip.fabrics.link import Link, LinkStats
from drld.gossip.fabrics.membership import Membership
from drld.gossip.wire.sequence import Refusal
from drld.model import GlobalView, Quantity, Update

AnyLink = TypeVar("AnyLink", bound=Link)


def _equal(_limiter: str) -> float:
    return 1.0


class Fabric(ABC, Generic[AnyLink]):
    """The knowledge of one limit, as one limiter has it."""

    kind: ClassVar[int]
    """Of the messages with its updates, on the wire."""
    memberships: ClassVar[type[Membership]]
    carries_second: ClassVar[bool] = True
    """Whether a limit may share two quantities."""
    link_type: type[AnyLink]

    def __init__(
        self,
        *,
        membership: Membership,
        limit_id: int,
        quantity: Quantity,
        share: Callable[[str], float] = _equal,
    ) -> None:
        """`share` is the static share of a limiter, as a part of those of all."""
        self.share = share
        self.membership = membership
        self.limit_id = limit_id
        self.quantity = quantity
        self._links: dict[str, AnyLink] = {}
        """Of those that were ever sent to or heard from."""
        self._strangers: set[str] = set()
        """Peers whose last update was of another allocator."""
        self._begin()

    @staticmethod
    def fanout(branching: int) -> int | None:
        """The number of peers that a round has to reach, on average; None: all of them."""
        return branching

    @classmethod
    def make_membership(
        cls, name: str, peers: Collection[str], branching: int, interval_ns: int
    ) -> Membership:
        """What a limiter that uses this fabric knows of its peers at first."""
        return cls.memberships(name, peers, cls.fanout(branching), interval_ns)

    @abstractmethod
    def _begin(self) -> None:
        """Make the fabric's own state; the attributes above are there."""

    @property
    def detection_ns(self) -> int:
        """The detection time, ns: so long after the last event the limit is kept to.

        docs/conservative-rule.md has what is an event, and the proof.
        """
        return self.membership.detection_ns

    @property
    @abstractmethod
    def news_ns(self) -> int:
        """The age of news, ns: what is believed of a connected limiter is something that it told
        no longer ago, between two events (docs/conservative-rule.md).
        """

    @property
    @abstractmethod
    def quiet(self) -> bool:
        """Whether no limiter of the fleet has demand, as far as is known here.

        There is nothing to publish then, until `publish` is given a value that is not zero or
        something is received, and the view does not change but with the membership.
        """

    @abstractmethod
    def publish(
        self, value: float, targets: Sequence[str], now_ns: int
    ) -> Sequence[tuple[str, Update]]:
        """End a round with this limiter's own `value`; return what to tell which target."""

    def pressing(self, value: float, now_ns: int) -> bool:  # noqa: ARG002 -- where it may be
        """Whether what there is to tell has changed so much that it cannot wait for its round.

        Asked at ticks between two rounds, where a limit's interval is shorter than gossip's.
        """
        return False

    @abstractmethod
    def receive(self, peer: str, update: Any, now_ns: int) -> None:
        """Take in one update of this limit, of the fabric's type, from a known peer."""

    @abstractmethod
    def view(self, now_ns: int) -> GlobalView:
        """What the other limiters are believed to want, and which of them are connected.

        The demand of a peer that is no longer connected counts for a while
        (`fabrics.membership`), then it is zero.
        """

    def told(self, now_ns: int) -> Mapping[str, tuple[float, int]]:  # noqa: ARG002 -- where it may be
        """By peer, the value that it told and that counts, and how many limiters it is the sum of.

        Empty for a fabric whose peers tell no values that stand for limiters.
        """
        return {}

    def set_peers(self) -> None:
        """Take over the membership's peers (a reload); what is known of those that stay is kept."""
        for peer in self._links.keys() - set(self.membership.peers):
            del self._links[peer]
            self._strangers.discard(peer)

    @property
    def links(self) -> Mapping[str, LinkStats]:
        """Statistics for each peer that was ever sent to or heard from."""
        return self._links

    def _link(self, peer: str) -> AnyLink:
        link = self._links.get(peer)
        if link is None:
            sequences = self.membership.numbering.of(peer, self.limit_id)
            link = self._links[peer] = self.link_type(sequences=sequences)
        return link

    def on_session(self, peer: str) -> None:
        """A session with another life of the peer has begun; the link was used in the last one."""
        self._strangers.discard(peer)

    def _reject(self, peer: str, update: Update, now_ns: int) -> None:
        """Count an update of another quantity; its sender takes no part in this limit."""
        link = self._link(peer)
        judged = link.sequences.accept(update.sequence, self.membership.round(now_ns))
        if not isinstance(judged, Refusal):
            link.rejected += 1
            self._strangers.add(peer)

    def _accept(self, peer: str, link: AnyLink, update: Update, now_ns: int) -> int | None:
        """Judge an update as `Link.accept` does, and have the membership hear its sender."""
        lost = link.accept(update.sequence, self.membership.round(now_ns))
        if lost is not None:
            self._strangers.discard(peer)
            self.membership.take(peer, update, now_ns)
        return lost

    def _connected(self, now_ns: int) -> frozenset[str]:
        connected = self.membership.connected(now_ns)
        return connected - self._strangers if self._strangers else connected
