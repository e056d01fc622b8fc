"""A fabric brings one limiter the sum of the other limiters' values, for one limit.

A fabric is a pure state machine: time and randomness are arguments, datagrams are values. It gets
decoded updates and the limiter's own value. It returns the updates to send, and the sum of the
values that it believes the other limiters to have. The `Membership`, which all limits share, says
which peers are connected, and which are the targets of a round.
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
_NOBODY = frozenset[str]()
"""No peer; one object for all limits."""


def _equal(_limiter: str) -> float:
    return 1.0


class Fabric(ABC, Generic[AnyLink]):
    """The state of one limit's gossip, on one limiter."""

    kind: ClassVar[int]
    """The number on the wire of the messages with its updates."""
    memberships: ClassVar[type[Membership]]
    """The class of the fabric's membership."""
    carries_second: ClassVar[bool] = True
    """Whether a limit may share two quantities."""
    passes_on: ClassVar[bool] = False
    """Whether values reach a limiter through others, also those that do not have the limit."""
    link_type: type[AnyLink]

    def __init__(
        self,
        *,
        membership: Membership,
        limit_id: int,
        quantity: Quantity,
        share: Callable[[str], float] = _equal,
    ) -> None:
        """`share` returns a limiter's static share; those of all limiters sum to 1."""
        self.share = share
        self.membership = membership
        self.limit_id = limit_id
        self.quantity = quantity
        self._links: dict[str, AnyLink] = {}
        """The link to each peer, made with the first update either way."""
        self._strangers = _NOBODY
        """Peers whose newest update has another allocator's quantity."""
        self._begin()

    @staticmethod
    def fanout(branching: int) -> int | None:
        """The number of peers that a round must reach, on average; None: all of them."""
        return branching

    @classmethod
    def make_membership(
        cls, name: str, peers: Collection[str], branching: int, interval_ns: int
    ) -> Membership:
        """A new membership for a limiter that uses this fabric."""
        return cls.memberships(name, peers, cls.fanout(branching), interval_ns)

    @abstractmethod
    def _begin(self) -> None:
        """Make the subclass's state; `__init__` calls it last."""

    @property
    def detection_ns(self) -> int:
        """The time from the last event until the local limits sum to at most the limit, ns.

        docs/conservative-rule.md defines an event, and has the proof.
        """
        return self.membership.detection_ns

    @property
    @abstractmethod
    def news_ns(self) -> int:
        """The age of news, ns: the longest time for which a limiter believes a value that its
        sender has replaced, while no event happens (docs/conservative-rule.md).
        """

    @property
    @abstractmethod
    def quiet(self) -> bool:
        """Whether no limiter of the fleet has demand, as far as this limiter knows.

        Then `publish` returns nothing until it gets a value above zero or an update comes, and the
        view changes only with the membership.
        """

    @abstractmethod
    def publish(
        self, value: float, targets: Sequence[str], now_ns: int
    ) -> Sequence[tuple[str, Update]]:
        """End a round with this limiter's own `value`; return updates with their receivers.

        The receivers are among `targets`.
        """

    def pressing(self, value: float, now_ns: int) -> bool:  # noqa: ARG002 -- a fabric may need it
        """Whether the own `value`, or a sum with it, has changed too much to wait for the round.

        The engine asks at ticks between two rounds, if a limit's interval is shorter than a round.
        """
        return False

    @abstractmethod
    def receive(self, peer: str, update: Any, now_ns: int) -> None:
        """Receive an update of this limit, of the fabric's type, from a known peer."""

    @abstractmethod
    def view(self, now_ns: int) -> GlobalView:
        """The believed sum of the other limiters' values, and which limiters are connected.

        The value of a peer that is no longer connected counts for a while (`fabrics.membership`).
        """

    def told(self, now_ns: int) -> Mapping[str, tuple[float, int]]:  # noqa: ARG002 -- a fabric may need it
        """The newest value of each peer if it counts, and the number of limiters in it, by peer.

        Empty for a fabric whose peers send no values of limiters (push-sum).
        """
        return {}

    def set_peers(self) -> None:
        """Take over the membership's peers after a reload; keep the links to those that stay."""
        for peer in self._links.keys() - set(self.membership.peers):
            del self._links[peer]
            self._welcome(peer)

    @property
    def links(self) -> Mapping[str, LinkStats]:
        """The statistics of each link."""
        return self._links

    def _link(self, peer: str) -> AnyLink:
        link = self._links.get(peer)
        if link is None:
            sequences = self.membership.numbering.of(peer, self.limit_id)
            link = self._links[peer] = self.link_type(sequences=sequences)
        return link

    def on_session(self, peer: str) -> None:
        """A session with another life of the peer has begun; the last life used the link."""
        self._welcome(peer)

    def _reject(self, peer: str, update: Update, now_ns: int) -> None:
        """Count an update of another quantity; its sender then takes no part in this limit."""
        link = self._link(peer)
        judged = link.sequences.accept(update.sequence, self.membership.round(now_ns))
        if not isinstance(judged, Refusal):
            link.rejected += 1
            self._strangers |= {peer}

    def _accept(self, peer: str, link: AnyLink, update: Update, now_ns: int) -> int | None:
        """Judge an update as `Link.accept` does; if accepted, pass it to the membership."""
        lost = link.accept(update.sequence, self.membership.round(now_ns))
        if lost is not None:
            self._welcome(peer)
            self.membership.take(peer, update, now_ns)
        return lost

    def _welcome(self, peer: str) -> None:
        """The peer takes part in this limit, as far as is known."""
        if peer in self._strangers:
            self._strangers = self._strangers - {peer} or _NOBODY

    def _connected(self, now_ns: int) -> frozenset[str]:
        connected = self.membership.connected(now_ns)
        return connected - self._strangers if self._strangers else connected
