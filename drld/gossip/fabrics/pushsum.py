"""Push-sum gossip: the paper's fabric, with a constant cost for each limiter.

Paper, sections 3.1, 4.2 and 5.6, after Kempe, Dobra and Gehrke. `fabrics.pushsum_pair` has the
arithmetic of the (value, weight) pair. This file decides how much of it a peer gets, and when all
limiters restart from their own demand.

Theory of operation. Once an interval, a limiter adds the change of its demand to its value. It
splits its pair into equal shares, keeps one, and gives one to each of the round's `branching`
targets. Each link is used once a cycle (`fabrics.membership`). That bounds the time until a lost
share comes, or a death is noticed. The remote demand is the mean, value / weight, times the number
of limiters (this one, the connected ones, those whose demand still counts), less the own demand.

Mass. Value and weight are *mass*. The fleet's sums must not change when an update is lost, repeated
or overtaken. So an update carries the *running sums* of all shares that went over its link in this
epoch (Vaidya, Hadjicostis, Dominguez-Garcia: "Robust average consensus over packet dropping links",
2012). The receiver adds their growth since the last update that it accepted. Mass of a lost update
comes with the next one. Only mass sent to a dead peer is lost, so a limiter gives shares only to a
peer that it hears and that hears it. The paper (section 4.2, quoted in `wire.sequence`) counts the
newest pair once more for each lost one. The sum of the weights then strays, and with it the effect
of changes of demand.

Mass under way. A lost share waits for the link's next turn, a cycle of C intervals. With r lost
updates for each that arrives, it waits C r intervals on average. With shares as large as without
loss, nearly all mass would be under way, and a change of demand would meet a tiny weight. So a
share is 1 / (1 + C r) of what the limiter keeps; r is counted on the updates that come (`_losses`).
If a part g of them follows a gap, r is at most g / (1 - g), as with independent losses. So a short
outage is not taken for steady loss.

Epochs. A new epoch restarts every limiter: value = own demand, weight = 1, sums of 0. Sums of older
epochs are discarded. A newer epoch (serial arithmetic on 4 bits) is adopted at once. Until the new
ratio has settled (`settling_intervals` times 1 + C r, a quarter of an epoch at most), the last
estimate of the old epoch holds. A limiter begins an epoch

- when mass is in the pool without its limiter, or was lost: a peer that exchanged mass in this
  epoch no longer counts, was removed, has restarted, or has left the epoch and joined it again (its
  sums have shrunk);
- when for `QUIET_ROUNDS` the rounding of the sums has been large against the demand, which has
  fallen, or may be all that is left of it;
- when the epoch is `EPOCH_INTERVALS` old: any other error ends, and float32 carries the sums;
- when its pair or sums are too large or too small for the wire.

A peer that joins needs no epoch: it adopts the current one, and adds its own demand and weight.

No storm of epochs. A limiter begins no epoch before its present one is two settling times old,
except for the last reason. Only limiters that exchanged mass with a dead limiter react to its
death, and the first epoch after it is enough for all. Limiters that begin an epoch at the same time
give it the same number. A limiter that has heard no peer (at the start, or isolated) begins none.
It joins the first epoch that it hears of, and believes no peer until that has settled.

Quiescence. A limiter stops sending after `QUIET_ROUNDS` in which its own demand and the believed
demand were zero. If all limiters are quiescent, all know the total: zero. So the first demand after
that begins an epoch of zeros. It has settled already for each limiter that is quiescent when it
adopts the epoch. The membership must have been steady, or a peer may not have had its turn.
A quiescent limiter that receives sums of an older epoch answers, so that the sender learns of the
newer epoch.

Invariants, in an epoch without deaths and restarts, whatever happens to updates. Summed over
limiters and links (what was given, less what was taken), the values are the sum of the demands, and
the weights are N, to within the rounding of doubles. An idle fleet believes exactly zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from drld.gossip.fabrics.base import Fabric
from drld.gossip.fabrics.link import Link
from drld.gossip.fabrics.membership import Membership
from drld.gossip.fabrics.pushsum_pair import NOTHING, RESOLUTION, Mass, Pair
from drld.gossip.fabrics.pushsum_update import EPOCH_MODULUS, PUSHSUM, PushsumUpdate
from drld.gossip.fabrics.quiescence import QUIET_ROUNDS
from drld.gossip.wire.update_codec import MAX_VALUE
from drld.model import HEARTBEAT, GlobalView, Quantity

EPOCH_INTERVALS = 1200
"""The age at which an epoch ends: a minute, with intervals of 50 ms."""
COUNTED = 64
"""The number of latest updates in which losses are counted, about."""


def newer(epoch: int, reference: int) -> bool:
    """Whether an epoch is newer than the reference. Of two that are half the circle apart, the
    larger number is the newer one."""
    ahead = (epoch - reference) % EPOCH_MODULUS
    half = EPOCH_MODULUS // 2
    return 0 < ahead < half or (ahead == half and epoch > reference)


def settling_intervals(members: int, branching: float) -> int:
    """Intervals until the ratios of a new epoch agree to about one per cent of the total.

    The mean square of their deviations falls by the factor branching + 1 in each interval. At first
    it is at most N, if one limiter has all demand. After 2 log(N) / log(branching + 1) intervals it
    is 1 / N. Three more let the epoch and the last pairs arrive. If only some peers are connected,
    `branching` is the mean number of targets that get a share.
    """
    return 3 + math.ceil(2 * math.log(members) / math.log(branching + 1))


class PushsumMembership(Membership):
    """The peers of a limiter in push-sum."""

    def _begin(self) -> None:
        super()._begin()
        self.aware: dict[int, PushSum] = {}
        """The fabrics to tell of the next change of the peers, by limit."""

    def _change(self) -> None:
        super()._change()
        for fabric in self.aware.values():
            fabric.on_peer_change()
        self.aware.clear()

    def heartbeat(self, peer: str, now_ns: int) -> PushsumUpdate:
        """See `Membership`; a heartbeat carries no mass, and its epoch has no meaning."""
        return PushsumUpdate(
            limit_id=HEARTBEAT,
            sequence=self._heartbeat_link(peer).sequences.take(),
            quantity=Quantity.RATE,
            hears=self.fresh(peer, now_ns),
            value=0.0,
            epoch=0,
            weight=0.0,
        )


@dataclass(slots=True)
class _Peer(Link):
    """A peer, and the running sums each way, of the limiter's epoch that has the number."""

    generation: int = -1
    """The newest epoch (`_generation`) in which the peer told its sums."""
    taken: Pair = NOTHING
    """Its newest sums in that epoch."""
    given: int = -1
    """The newest epoch in which the limiter gave the peer a share."""
    told: Pair = NOTHING
    """The sums of all shares in that epoch."""


class PushSum(Fabric[_Peer]):
    """Push-sum, for one limit."""

    kind = PUSHSUM.kind
    memberships = PushsumMembership
    carries_second = False
    passes_on = True
    link_type = _Peer
    membership: PushsumMembership

    def _begin(self) -> None:
        self.mass = Mass()
        self.epoch = 0
        """The number of the epoch on the wire."""
        self._generation = 0
        """The number of epochs that this limiter has been in; those on the wire repeat."""
        self._epoch_ns: int | None = None
        """Time at which this limiter began or joined the epoch; None before the first."""
        self._anchored = False
        """Whether other limiters are in this epoch."""
        self._coarse = 0
        """Consecutive rounds in which rounding was large against the mean demand."""
        self._came = 0
        """Updates that came, `COUNTED` at most."""
        self._losses = self._gaps = 0.0
        """Lost updates, and gaps of any length, for each that came; means of about so many."""
        self._tainted = False
        """Whether the pool has mass of a removed peer, or of an earlier life of a peer."""
        self._held: tuple[float, int] | None = None
        """The last settled estimate of the remote demand, and its time, ns."""
        self._zeros = QUIET_ROUNDS
        """Consecutive rounds in which the own demand and the believed one were zero."""
        self.membership.aware[self.limit_id] = self
        self._peers_changed = False
        """Whether the connected peers have changed since `_look_around`."""
        self._reached = len(self.membership.peers)
        """The number of peers that were connected then."""

    @property
    def news_ns(self) -> int:
        """See `Fabric.news_ns`: the time in which mass spreads to about one per cent.

        That is a settling time without loss, less the two intervals in which a new epoch reaches
        all. Loss makes news older.
        """
        return self._settling(self._reached) - 2 * self.membership.interval_ns

    @property
    def detection_ns(self) -> int:
        """See `Fabric`: a new epoch may wait for two settling times, and then must settle."""
        return self.membership.detection_ns + 3 * self._settling(1)

    @property
    def quiet(self) -> bool:
        """See `Fabric.quiet`."""
        return self._zeros >= QUIET_ROUNDS

    def publish(
        self, value: float, targets: Sequence[str], now_ns: int
    ) -> list[tuple[str, PushsumUpdate]]:
        """See `Fabric.publish`: split the mass among this limiter and the targets.

        Raises:
            ValueError: the value is negative, not finite, or beyond what the wire carries.
        """
        if not 0 <= value <= MAX_VALUE:
            raise ValueError(f"a shared value is from 0 to {MAX_VALUE:g}, not {value}")
        self._look_around(now_ns)
        if value or self._others_want:
            if self._silence(now_ns) and not self._others_want:
                self._anchored = True
                self._begin_epoch((self.epoch + 1) % EPOCH_MODULUS, now_ns)
            self._zeros = 0
        elif self.quiet:
            return []
        else:
            self._zeros += 1
        self.mass.change_own(value)
        self._coarse = self._coarse + 1 if self.mass.coarse else 0
        if self._epoch_is_due(now_ns):
            self._begin_epoch((self.epoch + 1) % EPOCH_MODULUS, now_ns)
        membership = self.membership
        links = [self._link(peer) for peer in targets if membership.both_ways(peer, now_ns)]
        for link in links:
            if link.given != self._generation:
                link.given, link.told = self._generation, NOTHING
        sums = self.mass.split([link.told for link in links], 1 / self._wait)
        for link, told in zip(links, sums, strict=True):
            link.told = told
        return [(peer, self._update(peer, membership.fresh(peer, now_ns))) for peer in targets]

    def receive(self, peer: str, update: PushsumUpdate, now_ns: int) -> None:
        """See `Fabric.receive`: add what the peer's sums have grown by."""
        if update.quantity is not self.quantity:
            self._reject(peer, update, now_ns)
            return
        link = self._link(peer)
        lost = self._accept(peer, link, update, now_ns)
        if lost is None:
            return
        self._came = min(self._came + 1, COUNTED)
        self._losses += (lost - self._losses) / self._came
        self._gaps += ((lost > 0) - self._gaps) / self._came
        if not self._anchored:
            self._anchor(update.epoch, now_ns)
        elif update.hears and newer(update.epoch, self.epoch):
            self._begin_epoch(update.epoch, now_ns)
        if not update.hears:
            return
        if update.epoch != self.epoch:
            self._zeros = min(self._zeros, QUIET_ROUNDS - 1)
            return
        taken = link.taken if link.generation == self._generation else NOTHING
        sums = Pair(update.value, update.weight)
        if sums.weight < taken.weight:  # It has left the epoch, and joined it again.
            self._tainted, taken = True, NOTHING
        link.generation, link.taken = self._generation, sums
        growth = Pair(sums.value - taken.value, sums.weight - taken.weight)
        self.mass.add(growth, len(self.membership.peers))
        if self._others_want:
            self._zeros = 0

    def on_session(self, peer: str) -> None:
        """See `Fabric.on_session`; the mass of the peer's last life belongs to no limiter now."""
        super().on_session(peer)
        link = self._links.get(peer)
        if link is not None:
            self._tainted |= self._generation in (link.generation, link.given)
            link.generation = link.given = -1

    def view(self, now_ns: int) -> GlobalView:
        """See `Fabric.view`: the mean times the number of limiters, less the own demand.

        Its age is the time since any peer was heard, or the age of the held estimate. Without any
        estimate, the view has no connected peer.
        """
        self._look_around(now_ns)
        connected = self._connected(now_ns)
        if connected:
            if self._silence(now_ns):
                return GlobalView(0.0, connected, age_ns=self.membership.age_ns(now_ns))
            if self._settled(now_ns):
                remote = self.mass.remote(self._members(now_ns))
                return GlobalView(remote, connected, age_ns=self.membership.age_ns(now_ns))
            if self._held is not None:
                remote, made_ns = self._held
                return GlobalView(remote, connected, age_ns=now_ns - made_ns)
        return GlobalView(remote=0.0, connected=frozenset(), age_ns=None)

    def set_peers(self) -> None:
        """See `Fabric.set_peers`; the mass of removed peers leaves with the next epoch."""
        self._tainted |= any(
            self._generation in (link.generation, link.given) and peer not in self.membership.peers
            for peer, link in self._links.items()
        )
        super().set_peers()

    def on_peer_change(self) -> None:
        """Note that the connected peers have changed since `_look_around`."""
        self._peers_changed = True

    @property
    def _others_want(self) -> bool:
        members = len(self.membership.peers) + 1
        return members * abs(self.mass.value - self.mass.own) >= RESOLUTION * self.mass.weight

    def _update(self, peer: str, hears: bool) -> PushsumUpdate:
        link = self._link(peer)
        sums = link.told if hears and link.given == self._generation else NOTHING
        return PushsumUpdate(
            limit_id=self.limit_id,
            sequence=link.sequences.take(),
            quantity=self.quantity,
            hears=hears,
            value=sums.value,
            epoch=self.epoch,
            weight=sums.weight,
        )

    def _look_around(self, now_ns: int) -> None:
        """After a change, find out whether a peer that exchanged mass is gone, or all peers are."""
        connected = self._connected(now_ns)
        if not self._peers_changed:
            return
        self._peers_changed = False
        self.membership.aware[self.limit_id] = self
        self._reached = len(connected)
        if not connected:
            self._anchored = False
        leaving = self.membership.leaving(now_ns)
        self._tainted |= any(
            self._generation in (link.generation, link.given)
            and peer not in connected
            and peer not in leaving
            for peer, link in self._links.items()
        )

    def _anchor(self, epoch: int, now_ns: int) -> None:
        """Join the epoch of the first peer that is heard; without an estimate until it settles."""
        self._anchored = True
        if epoch != self.epoch:
            self._begin_epoch(epoch, now_ns)
        else:
            self._epoch_ns = self._beginning_ns(now_ns)
        self._held = None

    def _epoch_is_due(self, now_ns: int) -> bool:
        if not self.mass.sound:
            return True
        if self._epoch_ns is None:
            return False
        age_ns = now_ns - self._epoch_ns
        if age_ns >= EPOCH_INTERVALS * self.membership.interval_ns:
            return True
        due = self._tainted or self._coarse >= QUIET_ROUNDS
        return due and age_ns >= 2 * self._settling_ns

    def _members(self, now_ns: int) -> int:
        """The number of limiters whose demand counts, this one included."""
        gone = self.membership.leaving(now_ns)
        return len(self._connected(now_ns)) + len(gone - self._strangers) + 1

    def _begin_epoch(self, epoch: int, now_ns: int) -> None:
        connected = self._connected(now_ns)
        if connected and self._settled(now_ns):
            self._held = (self.mass.remote(self._members(now_ns)), now_ns)
        self.epoch = epoch
        self._epoch_ns = self._beginning_ns(now_ns)
        self._generation += 1
        self._tainted = False
        self.mass.restart()

    def _beginning_ns(self, now_ns: int) -> int:
        """The begin of a new epoch, ns; an epoch of zeros counts as begun earlier, and settled."""
        return now_ns - self._settling_ns if self._silence(now_ns) else now_ns

    def _silence(self, now_ns: int) -> bool:
        """Whether it is known that no limiter has demand."""
        return self.quiet and self.membership.steady(now_ns)

    @property
    def _wait(self) -> float:
        """The time for which a share waits on average, with the interval in which it goes out."""
        membership = self.membership
        losses = min(self._losses, self._gaps / (1 + 1 / COUNTED - self._gaps))
        return 1 + len(membership.peers) / membership.branching * losses

    @property
    def _settling_ns(self) -> int:
        longest_ns = EPOCH_INTERVALS // 4 * self.membership.interval_ns
        lossless_ns = self._settling(self._reached)
        return max(lossless_ns, min(round(lossless_ns * self._wait), longest_ns))

    def _settling(self, connected: int) -> int:
        """The time until an epoch settles without loss, if `connected` peers are connected, ns."""
        membership = self.membership
        peers = len(membership.peers)
        branching = membership.branching * max(1, connected) / max(1, peers)
        return membership.interval_ns * settling_intervals(peers + 1, branching)

    def _settled(self, now_ns: int) -> bool:
        return self._epoch_ns is not None and now_ns - self._epoch_ns >= self._settling_ns
