"""The broadcast mesh: every limiter tells every other its own value in each round.

Paper, section 3.1: "the simplest form of communication fabric is a broadcast mesh. While fast and
robust, a full mesh is also extremely bandwidth-intensive (requiring O(N2) update messages per
estimate interval)".

Theory of operation. Each limiter keeps the newest value of each origin, and their sum is the remote
demand. Loss and reordering only make a value older, never wrong: the next update replaces it. A
value that was not repeated for T counts zero (`fabrics.membership`): who wants nothing stops
saying so after `QUIET_ROUNDS`, and who wants something repeats it in each round.

Who is torn. In a fleet where all are connected to all, everybody knows the same sum. Where some
links are cut, limiters share the static shares s_j of others with whom they do not share the
knowledge of what all want: in a chain a - b - c both a and c have a claim on s_b, and do not know
of each other. But b knows of both. So a limiter tells its peer the *rest*: what it believes that
all others than that peer want. With w_i the value of i and r_ji the rest that j told i, the part of
the limit L that i may use is

    l_i = L * sum over connected j, and i itself, of s_j * w_i / (w_i + r_ji)

Everybody's share is divided among those that have a claim on it in proportion to what they want,
and all l_i sum to L, whatever is cut (proof: docs/conservative-rule.md). An allocator knows of one
remote demand, so it is told the one that comes to the same: (w_i + r_ji) is replaced by its
harmonic mean, weighted with the shares.

What a peer tells counts when its share does (`Membership.rise_ns`); until then it may not know of
all that want something. The rest costs an interval, as what it says is one older. So where both are
*whole*, connected to all peers, it is not told, and the receiver's own sum counts. As long as
anybody is not, those who want nothing speak too if others want something.

On the wire the value is the sender's own, in the limit's quantity. The weight is 0 if the sender
does not hear the receiver; 1 if it does, and the receiver is to count its own sum; else 2**-70
times the rest, 2**-126 at least. The epoch is 1 if the sender is whole, of heartbeats too.

Invariant: without loss and delay, and among those that are whole, remote is exactly the sum of the
others' values as rounded to float32, one interval old at most.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from drld.gossip.fabrics.base import Fabric
from drld.gossip.fabrics.link import Link
from drld.gossip.fabrics.membership import Membership
from drld.gossip.fabrics.quiescence import Quiescence
from drld.gossip.wire.update_codec import to_float32
from drld.model import GlobalView, Update

OWN_SUM = 1.0
"""The weight that has the receiver count its own sum."""
_SCALE = 2.0**-70
_LEAST = 2.0**-126
WHOLE = 1
"""The epoch of who is connected to all its peers."""


class MeshMembership(Membership):
    """Who is there, and who says that it misses somebody."""

    def __init__(
        self, name: str, peers: Collection[str], fanout: int | None, interval_ns: int
    ) -> None:
        super().__init__(name, peers, fanout, interval_ns)
        self.torn: set[str] = set()
        """Peers that were heard and are not whole."""

    def _set_peers(self, peers: Collection[str]) -> None:
        super()._set_peers(peers)
        self.torn = self.torn & self._peers.keys()

    def take(self, peer: str, update: Update, now_ns: int) -> None:
        """See `Membership`."""
        super().take(peer, update, now_ns)
        torn = bool(self.torn)
        if update.epoch == WHOLE:
            self.torn.discard(peer)
        else:
            self.torn.add(peer)
        if torn != bool(self.torn):
            self._note_change(True, now_ns)

    def steady(self, now_ns: int) -> bool:
        """See `Membership`; and nobody misses anybody, as what is told of that concerns all."""
        return super().steady(now_ns) and not self.torn

    def heartbeat(self, peer: str, now_ns: int) -> Update:
        """See `Membership`."""
        heard = 1.0 if self.fresh(peer, now_ns) else 0.0
        return self._heartbeat(peer, int(self.whole(now_ns)), heard)

    def whole(self, now_ns: int) -> bool:
        """Whether all peers are connected."""
        return len(self.connected(now_ns)) == len(self.peers)


class _Origin(Link):
    """A peer, the newest value it told, and the rest."""

    __slots__ = ("connected_ns", "rest", "value", "value_ns")

    def __init__(self) -> None:
        super().__init__()
        self.value = 0.0
        self.value_ns = 0
        self.rest: float | None = None
        """What it believes that all others than this limiter want; None: the own sum counts."""
        self.connected_ns: int | None = None
        """Since when it is connected."""


class Mesh(Fabric[_Origin]):
    """Every limiter to every limiter."""

    membership: MeshMembership

    @staticmethod
    def fanout(branching: int) -> int | None:  # noqa: ARG004 - of the interface
        """Everybody."""
        return None

    @classmethod
    def make_membership(
        cls, name: str, peers: Collection[str], branching: int, interval_ns: int
    ) -> Membership:
        """See `Fabric`."""
        return MeshMembership(name, peers, cls.fanout(branching), interval_ns)

    def _begin(self) -> None:
        self._quiescence = Quiescence()
        self._own = 0.0
        """What was told last."""

    def _new_link(self) -> _Origin:
        return _Origin()

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
    ) -> list[tuple[str, Update]]:
        """Tell everybody."""
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
            link = self._link(peer)
            weight = 0.0
            if membership.fresh(peer, now_ns):
                weight = OWN_SUM
                if not whole or peer in membership.torn:
                    rest = max(0.0, total - values.get(peer, 0.0))
                    weight = max(_LEAST, to_float32(rest * _SCALE))
            update = Update(
                limit_id=self.limit_id,
                sequence=link.take_sequence(),
                quantity=self.quantity,
                epoch=int(whole),
                value=self._own,
                weight=weight,
            )
            told.append((peer, update))
        return told

    def receive(self, peer: str, update: Update, now_ns: int) -> None:
        """Keep the value if it is the newest of its origin."""
        if update.quantity is not self.quantity or update.value < 0:
            self._reject(peer, update)
            return
        link = self._link(peer)
        if self._accept(peer, link, update, now_ns) is not None:
            link.value = update.value
            link.value_ns = now_ns
            if update.weight > 0:
                told = update.weight != OWN_SUM
                link.rest = update.weight / _SCALE if told else None
            self._quiescence.others_want |= update.value > 0

    def meet(self, peer: str, now_ns: int) -> None:
        """See `Fabric.meet`; who has just begun does not know of the others."""
        super().meet(peer, now_ns)
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
            if peer not in connected:
                link.connected_ns = None
            elif link.connected_ns is None:
                link.connected_ns = now_ns
            elif (
                link.rest is not None
                # Who has come to be whole may have fallen silent about the limit before.
                and (not whole or peer in membership.torn)
                and now_ns - link.connected_ns >= membership.rise_ns
            ):
                rests[peer] = link.rest
        self._quiescence.others_want = remote > 0
        if rests:
            remote = self._effective(remote, rests, connected)
        if age_ns is None and connected:
            age_ns = self.membership.age_ns(now_ns)
        return GlobalView(remote=remote, connected=connected, age_ns=age_ns)

    def _counted(self, now_ns: int) -> Iterator[tuple[str, _Origin]]:
        """Those whose values count."""
        connected = self._connected(now_ns)
        leaving = self.membership.leaving(now_ns)
        oldest_ns = now_ns - self.membership.timeouts.silence_ns
        for peer, link in self._links.items():
            if link.value_ns < oldest_ns:
                link.value, link.rest = 0.0, None
            if peer in connected or (peer in leaving and peer not in self._strangers):
                yield peer, link

    def _effective(
        self, remote: float, rests: Mapping[str, float], connected: Collection[str]
    ) -> float:
        """The remote demand that comes to the same as what each peer says of the rest."""
        own = self._own
        if not own:
            return max(remote, *rests.values())
        share = self.share
        shares = [(share(peer), own + rests.get(peer, remote)) for peer in connected]
        shares.append((share(self.membership.name), own + remote))
        claims = sum(part / total for part, total in shares)
        return sum(part for part, _ in shares) / claims - own if claims else remote
