"""The broadcast mesh: every limiter tells every other its own value in each interval.

Paper, section 3.1: "the simplest form of communication fabric is a broadcast mesh. While fast and
robust, a full mesh is also extremely bandwidth-intensive (requiring O(N2) update messages per
estimate interval)".

Theory of operation. Each limiter keeps the newest value of each origin; the sum over the connected
ones is the remote demand. Loss and reordering only make a value older, never wrong: the next update
replaces it. A peer that is no longer connected (`drld.gossip.link`) counts zero.

On the wire the value is the sender's own, in the limit's quantity; the weight is 1 if the sender
hears the receiver and 0 if not; the epoch is 0 and ignored.

Invariant: without loss and delay, remote is exactly the sum of the others' values as rounded to
float32, one interval old at most.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from random import Random

from drld.gossip.base import Fabric, LinkStats
from drld.gossip.link import Link, Timeouts
from drld.gossip.wire import to_float32
from drld.model import GlobalView, Update


@dataclass(slots=True)
class _Origin(Link):
    """A peer and the newest value it told."""

    value: float = 0.0
    value_ns: int = 0


class Mesh(Fabric):
    """Every limiter to every limiter."""

    def _begin(self) -> None:
        self._timeouts = Timeouts.of(self.interval_ns, cycle_ns=self.interval_ns)
        self._links = {peer: _Origin() for peer in self.peers}

    def publish(
        self,
        value: float,
        now_ns: int,
        rng: Random,  # noqa: ARG002 - of the interface
    ) -> list[tuple[str, Update]]:
        """Tell everybody."""
        return [
            (
                peer,
                Update(
                    limit_id=self.limit_id,
                    sequence=link.take_sequence(),
                    quantity=self.quantity,
                    epoch=0,
                    value=to_float32(value),
                    weight=1.0 if link.fresh(now_ns, self._timeouts) else 0.0,
                ),
            )
            for peer, link in self._links.items()
        ]

    def receive(self, peer: str, update: Update, now_ns: int) -> None:
        """Keep the value if it is the newest of its origin."""
        link = self._links[peer]
        if update.quantity is not self.quantity or update.value < 0:
            link.stats.rejected += 1
        elif link.accept(update, now_ns) is not None:
            link.value = update.value
            link.value_ns = now_ns

    def view(self, now_ns: int) -> GlobalView:
        """The sum over the connected limiters; its age is that of the oldest value in it."""
        connected = {
            peer: link
            for peer, link in self._links.items()
            if link.connected(now_ns, self._timeouts)
        }
        ages = [now_ns - link.value_ns for link in connected.values()]
        return GlobalView(
            remote=sum(link.value for link in connected.values()),
            connected=frozenset(connected),
            age_ns=max(ages, default=None),
        )

    def set_peers(
        self,
        peers: Collection[str],
        now_ns: int,  # noqa: ARG002 - of the interface
    ) -> None:
        """Change the fleet; those that stay keep value, counters and statistics."""
        self.peers = tuple(sorted(peers))
        self._links = {peer: self._links.get(peer) or _Origin() for peer in self.peers}

    @property
    def links(self) -> Mapping[str, LinkStats]:
        """Statistics for each peer."""
        return {peer: link.stats for peer, link in self._links.items()}
