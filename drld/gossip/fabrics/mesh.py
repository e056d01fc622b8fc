"""The broadcast mesh: every limiter sends its own value to every other limiter in each round.

Paper, section 3.1: "the simplest form of communication fabric is a broadcast mesh. While fast and
robust, a full mesh is also extremely bandwidth-intensive (requiring O(N2) update messages per
estimate interval)".

Theory of operation. Each limiter keeps the newest value of each peer. Their sum is the remote
demand. Loss and reordering make a value older, never wrong: the next update replaces it. A limiter
with demand repeats its value in each round, and one without demand stops sending zeros after
`QUIET_ROUNDS`. A value that was not repeated for T counts zero (`fabrics.membership`).

Torn fleets. If all limiters are connected, all know the same sum. Otherwise two limiters may have a
claim on the same static share s_j, and not know of each other. In a chain a - b - c, both a and c
have a claim on s_b. But b knows both. So a limiter sends its peer the *rest*: the demand that it
believes all limiters but that peer to have. With w_i the value of i and r_ji the rest that j sent
to i, the local limit of i is

    l_i = L * sum over connected j, and i itself, of s_j * w_i / (w_i + r_ji)

So each share is divided among the limiters with a claim on it, in proportion to their demand. All
l_i sum to the limit L, whatever is cut (proof: docs/conservative-rule.md). An allocator takes one
remote demand. It gets the one with the same effect: the harmonic mean of the (w_i + r_ji), weighted
with the shares, less w_i.

A peer's rest counts when its share does (`Membership.rise_ns`). Until then the peer may not know
all demand. A rest is one interval older than the receiver's own sum. So if sender and receiver are
*whole*, connected to all peers, no rest is sent, and the own sum counts. While any limiter is not
whole, limiters without demand also send updates if others have demand.

Invariant: without loss and delay, among whole limiters, the remote demand is exactly the sum of the
others' values, rounded to float32. It is at most one interval old.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from math import fsum

from drld.gossip.fabrics.base import Fabric
from drld.gossip.fabrics.link import Link
from drld.gossip.fabrics.membership import Membership
from drld.gossip.fabrics.mesh_update import MESH, MeshUpdate
from drld.gossip.fabrics.quiescence import Quiescence
from drld.gossip.wire.update_codec import MAX_VALUE, to_float32
from drld.model import HEARTBEAT, GlobalView, Quantity


class MeshMembership(Membership):
    """The peers of a limiter in a mesh, and which of them are not whole."""

    def _begin(self) -> None:
        super()._begin()
        self.torn: set[str] = set()
        """Peers whose newest update says that they are not whole."""

    def set_peers(self, peers: Collection[str]) -> None:
        """See `Membership`."""
        super().set_peers(peers)
        self.torn &= self._peers.keys()

    def take(self, peer: str, update: MeshUpdate, now_ns: int) -> None:
        """See `Membership`."""
        self.hear(peer, update.hears, now_ns)
        if update.whole == (peer in self.torn):
            torn = bool(self.torn)
            self.torn ^= {peer}
            if torn != bool(self.torn):
                self._note_change(True, now_ns)

    def steady(self, now_ns: int) -> bool:
        """See `Membership`; and every peer is whole, because one that is not concerns them all."""
        return super().steady(now_ns) and not self.torn

    def heartbeat(self, peer: str, now_ns: int) -> MeshUpdate:
        """See `Membership`."""
        return MeshUpdate(
            limit_id=HEARTBEAT,
            sequence=self._heartbeat_link(peer).sequences.take(),
            quantity=Quantity.RATE,
            hears=self.fresh(peer, now_ns),
            value=0.0,
            whole=self.whole(now_ns),
            rest=None,
        )

    def whole(self, now_ns: int) -> bool:
        """Whether this limiter is connected to all peers."""
        return len(self.connected(now_ns)) == len(self.peers)


@dataclass(slots=True)
class _Origin(Link):
    """A peer, with its newest value and rest."""

    value: float = 0.0
    value_ns: int = 0
    """Time at which the value was received."""
    rest: float | None = None
    """The rest that the peer sent; None: this limiter's own sum counts."""
    connected_ns: int | None = None
    """The time since which the peer is connected."""


class Mesh(Fabric[_Origin]):
    """The mesh, for one limit."""

    kind = MESH.kind
    memberships = MeshMembership
    link_type = _Origin
    membership: MeshMembership

    @staticmethod
    def fanout(branching: int) -> int | None:  # noqa: ARG004 -- the other fabrics need it
        """None: a limiter sends to all peers."""
        return None

    def _begin(self) -> None:
        self._quiescence = Quiescence()
        self._own = 0.0
        """The value that this limiter sent last."""

    @property
    def news_ns(self) -> int:
        """See `Fabric.news_ns`: a round, a path of up to a round, and a round until it is read."""
        return 3 * self.membership.interval_ns

    @property
    def quiet(self) -> bool:
        """See `Fabric.quiet`."""
        return self._quiescence.quiet

    def publish(
        self, value: float, targets: Sequence[str], now_ns: int
    ) -> list[tuple[str, MeshUpdate]]:
        """See `Fabric.publish`: all targets get the own value."""
        membership = self.membership
        whole = membership.whole(now_ns)
        torn = not whole or bool(membership.torn)
        self._own = to_float32(value)
        if not self._quiescence.speaks(
            wanted=bool(value) or (torn and self._quiescence.others_want)
        ):
            return []
        values = {peer: link.value for peer, link in self._counted(now_ns)} if torn else {}
        total = self._own + sum(values.values())
        updates = []
        for peer in targets:
            hears = membership.fresh(peer, now_ns)
            rest = None
            if hears and (not whole or peer in membership.torn):
                others = max(0.0, total - values.get(peer, 0.0))
                rest = to_float32(min(others, MAX_VALUE))
            sequence = self._link(peer).sequences.take()
            update = MeshUpdate(
                self.limit_id, sequence, self.quantity, hears, self._own, whole, rest
            )
            updates.append((peer, update))
        return updates

    def receive(self, peer: str, update: MeshUpdate, now_ns: int) -> None:
        """See `Fabric.receive`: the newest value of its sender replaces the one before."""
        if update.quantity is not self.quantity:
            self._reject(peer, update, now_ns)
            return
        link = self._link(peer)
        if self._accept(peer, link, update, now_ns) is not None:
            link.value = update.value
            link.value_ns = now_ns
            if update.hears:
                link.rest = update.rest
            self._quiescence.others_want |= update.value > 0

    def on_session(self, peer: str) -> None:
        """See `Fabric.on_session`; a peer that has just started does not know the demand."""
        super().on_session(peer)
        if (link := self._links.get(peer)) is not None:
            link.connected_ns = None

    def view(self, now_ns: int) -> GlobalView:
        """See `Fabric.view`; its age is that of the oldest value in it."""
        connected = self._connected(now_ns)
        remote = 0.0
        age_ns: int | None = None
        rests: dict[str, float] = {}
        membership = self.membership
        whole = membership.whole(now_ns)
        for peer, link in self._counted(now_ns):
            remote += link.value
            if link.value:
                age_ns = max(age_ns or 0, now_ns - link.value_ns)
            if link.connected_ns is None:
                if peer in connected:
                    link.connected_ns = now_ns
                    link.sequences.use()
                continue
            # A peer may have stopped sending for the limit before it became whole.
            if link.rest is None or (whole and peer not in membership.torn):
                continue
            since_ns = max(link.connected_ns, membership.connected_ns(peer))
            if now_ns - since_ns >= membership.rise_ns:
                rests[peer] = link.rest
        self._quiescence.others_want = remote > 0
        claims: tuple[tuple[float, float], ...] = ()
        if rests:
            share = self.share
            claims = (
                (share(membership.name), remote),
                *((share(peer), rests.get(peer, remote)) for peer in connected),
            )
            remote = self._effective(remote, claims)
        if age_ns is None and connected:
            age_ns = self.membership.age_ns(now_ns)
        return GlobalView(remote, connected, age_ns, claims=claims)

    def told(self, now_ns: int) -> dict[str, tuple[float, int]]:
        """See `Fabric.told`: each peer's own value."""
        return {peer: (link.value, 1) for peer, link in self._counted(now_ns)}

    def _counted(self, now_ns: int) -> Iterator[tuple[str, _Origin]]:
        """The peers whose values count."""
        connected = self._connected(now_ns)
        leaving = self.membership.leaving(now_ns)
        oldest_ns = now_ns - self.membership.timeouts.silence_ns
        for peer, link in self._links.items():
            if link.value_ns < oldest_ns:
                link.value, link.rest = 0.0, None
            if peer not in connected:
                link.connected_ns = None
            if peer in connected or (peer in leaving and peer not in self._strangers):
                yield peer, link

    def _effective(self, remote: float, claims: Sequence[tuple[float, float]]) -> float:
        """The remote demand that gives the same local limit as the rests of all shares."""
        own = self._own
        if not own:
            return max(remote, *(rest for _, rest in claims))
        # The result of `fsum` does not depend on the order of the connected peers.
        parts = fsum(part / (own + rest) for part, rest in claims)
        return fsum(part for part, _ in claims) / parts - own if parts else remote
