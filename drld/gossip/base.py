"""What a communication fabric does for one limit on one limiter.

A fabric is a pure state machine: time and randomness are arguments, datagrams are values.
It is fed decoded updates and the limiter's own shared value, and answers with the updates to
send and with what the rest of the fleet is believed to want.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from random import Random

from drld.model import GlobalView, Quantity, Update


@dataclass(slots=True)
class LinkStats:
    """What came over one link (one peer, one limit) since the daemon started."""

    received: int = 0
    """Updates accepted."""
    lost: int = 0
    """Updates that the gaps in the peer's sequence numbers show as lost."""
    late: int = 0
    """Updates discarded because a newer one, or their compensation, had been accounted for:
    duplicates and overtaken ones (the latter are among the lost, too)."""
    rejected: int = 0
    """Updates discarded for what they say (quantity of another allocator)."""
    last_heard_ns: int | None = None


class Fabric(ABC):
    """The knowledge of one limit, as one limiter has it."""

    def __init__(
        self,
        *,
        name: str,
        peers: Collection[str],
        limit_id: int,
        quantity: Quantity,
        branching: int,
        interval_ns: int,
    ) -> None:
        """`branching` peers are sent to in each `interval_ns`; fabrics that reach all ignore it."""
        self.name = name
        self.limit_id = limit_id
        self.quantity = quantity
        self.branching = branching
        self.interval_ns = interval_ns
        self.peers: tuple[str, ...] = tuple(sorted(peers))
        self._begin()

    @abstractmethod
    def _begin(self) -> None:
        """Make the fabric's own state; the attributes above are there."""

    @abstractmethod
    def publish(self, value: float, now_ns: int, rng: Random) -> list[tuple[str, Update]]:
        """End an estimate interval with this limiter's own `value`; return what to send to whom."""

    @abstractmethod
    def receive(self, peer: str, update: Update, now_ns: int) -> None:
        """Take in one update of this limit from a known peer."""

    @abstractmethod
    def view(self, now_ns: int) -> GlobalView:
        """What the other limiters are believed to want, stale estimates counted as zero."""

    @abstractmethod
    def set_peers(self, peers: Collection[str], now_ns: int) -> None:
        """Change the fleet (a reload) and keep what is known of those that stay."""

    @property
    @abstractmethod
    def links(self) -> Mapping[str, LinkStats]:
        """Statistics for each peer."""
