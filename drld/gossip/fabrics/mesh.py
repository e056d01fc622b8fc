"""The broadcast mesh: every limiter tells every other its own value in each round.

Paper, section 3.1: "the simplest form of communication fabric is a broadcast mesh. While fast and
robust, a full mesh is also extremely bandwidth-intensive (requiring O(N2) update messages per
estimate interval)".

Theory of operation. Each limiter keeps the newest value of each origin, and their sum is the remote
demand. Loss and reordering only make a value older, never wrong: the next update replaces it. A
value that was not repeated for T counts zero (`fabrics.membership`): a limiter without demand stops
to send zeros after `QUIET_ROUNDS`, and one with demand repeats its value in each round.

Torn fleets. In a fleet where all are connected to all, all know the same sum. Where some links are
cut, two limiters may have a claim on the same static share s_j and not know of each other: in a
chain a - b - c both a and c have a claim on s_b. But b knows of both. So a limiter tells its peer
the *rest*: what it believes all limiters but that peer to want. With w_i the value of i and r_ji
the rest that j told i, the part of the limit L that i may use is

    l_i = L * sum over connected j, and i itself, of s_j * w_i / (w_i + r_ji)

Each share is divided among the limiters that have a claim on it, in proportion to their demand, and
all l_i sum to L, whatever is cut (proof: docs/conservative-rule.md). An allocator knows of one
remote demand, so it is told the one that comes to the same: (w_i + r_ji) is replaced by its
harmonic mean, weighted with the shares.

The rest that a peer tells counts when its share does (`Membership.rise_ns`); until then the peer
may not know of all demand. The rest is one interval older than the receiver's own sum. So where
both are *whole*, connected to all peers, it is not told, and the own sum counts. As long as any
limiter is not whole, those without demand speak too if others have some.

Invariant: without loss and delay, and among those that are whole, remote is exactly the sum of the
others' values as rounded to float32, one interval old at most.
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
    """The peers of a limiter in a mesh, and those that are not connected to all of theirs."""

    def _begin(self) -> None:
        super()._begin()
        self.torn: set[str] = set()
        """Peers that were heard and are not whole."""

    def set_peers(self, peers: Collection[str]) -> None:
        """See `Membership`."""
        super().set_peers(peers)
        self.torn &= self._peers.keys()

    def take(self, peer: str, update: MeshUpdate, now_ns: int) -> None:
        """See `Membership`."""
        super().take(peer, update, now_ns)
        torn = bool(self.torn)
        if update.whole:
            self.torn.discard(peer)
        else:
            self.torn.add(peer)
        if torn != bool(self.torn):
            self._note_change(True, now_ns)

    def steady(self, now_ns: int) -> bool:
        """See `Membership`; and all are whole, as a limiter that is not concerns all."""
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
        """Whether all peers are connected."""
        return len(self.connected(now_ns)) == len(self.peers)


@dataclass(slots=True)
class _Origin(Link):
    """A peer, the newest value it told, and the rest that it told."""

    value: float = 0.0
    value_ns: int = 0
    rest: float | None = None
    """What it believes all but this limiter to want; None: the own sum counts."""
    connected_ns: int | None = None
    """Since when it is connected."""


class Mesh(Fabric[_Origin]):
    """Every limiter to every limiter."""

    kind = MESH.kind
    memberships = MeshMembership
    link_type = _Origin
    membership: MeshMembership

    @staticmethod
    def fanout(branching: int) -> int | None:  # noqa: ARG004 - of the interface
        """All peers."""
        return None

    def _begin(self) -> None:
        self._quiescence = Quiescence()
        self._own = 0.0
        """What was told last."""

    @property
    def news_ns(self) -> int:
        """See `Fabric.news_ns`: a round, a path as long, and a look into the socket."""
        return 3 * self.membership.interval_ns

    @property
    def quiet(self) -> bool:
        """See `Fabric.quiet`."""
        return self._quiescence.quiet

    def publish(
        self, value: float, targets: Sequence[str], now_ns: int
    ) -> list[tuple[str, MeshUpdate]]:
        """Tell all targets the own value."""
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
        told = []
        for peer in targets:
            hears = membership.fresh(peer, now_ns)
            rest = None
            if hears and (not whole or peer in membership.torn):
                others = max(0.0, total - values.get(peer, 0.0))
                rest = to_float32(min(others, MAX_VALUE))
            update = MeshUpdate(
                limit_id=self.limit_id,
                sequence=self._link(peer).sequences.take(),
                quantity=self.quantity,
                hears=hears,
                value=self._own,
                whole=whole,
                rest=rest,
            )
            told.append((peer, update))
        return told

    def receive(self, peer: str, update: MeshUpdate, now_ns: int) -> None:
        """Keep the value if it is the newest of its origin."""
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
        """See `Fabric.on_session`; a peer that has just begun does not know of the others."""
        super().on_session(peer)
        if (link := self._links.get(peer)) is not None:
            link.connected_ns = None

    def view(self, now_ns: int) -> GlobalView:
        """What the others want, as far as it concerns this limiter.

        Its age is that of the oldest value in it.
        """
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
            elif (
                link.rest is not None
                # A peer that has come to be whole may have fallen silent about the limit before.
                and (not whole or peer in membership.torn)
                and now_ns - max(link.connected_ns, membership.connected_ns(peer))
                >= membership.rise_ns
            ):
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
        """See `Fabric.told`: each peer told its own value."""
        return {peer: (link.value, 1) for peer, link in self._counted(now_ns)}

    def _counted(self, now_ns: int) -> Iterator[tuple[str, _Origin]]:
        """Those whose values count."""
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
        """The remote demand that gives the same part of the limit as those of all shares."""
        own = self._own
        if not own:
            return max(remote, *(rest for _, rest in claims))
        # The connected peers have no order, and `fsum` needs none.
        parts = fsum(part / (own + rest) for part, rest in claims)
        return fsum(part for part, _ in claims) / parts - own if parts else remote
