"""Push-sum gossip: the paper's fabric, with a constant cost for each limiter.

Paper, sections 3.1, 4.2 and 5.6, after Kempe, Dobra and Gehrke; `drld.gossip.mass` has the
arithmetic of the (value, weight) pair, this file who gets how much of it, and when all start anew.

Theory of operation. Once an interval a limiter adds the change of its demand to its value, splits
its pair into equal shares, keeps one and sends one to each of `branching` peers. They are picked at
random, but without repetition until all have had their turn (a shuffled order): each link is used
once a cycle, which bounds the time to compensate a loss and to notice a death. The number of
limiters that scales the mean is that of the connected ones and this one.

Who gets mass. Only a peer that we hear and that hears us (`drld.gossip.link`) gets a full share:
mass sent to a dead one is lost. One that we hear but that denies hearing us gets a token, which
tells it so; one that we do not hear gets zero.

Loss (section 4.2). "The receiving limiter uses the sequence number to determine if an update is
lost, and if so, compensates by scaling the value and weight of the newest update by the number of
lost packets": after a gap of n the pair counts n + 1 times, `MAX_COPIES` at most (longer outages
lose tokens, not shares). If the peer's pair is the first of an epoch, half of the gap is taken for
lost in that epoch. This keeps the ratio right, for what is lost and what replaces it have nearly
the same one; but not the sum of the weights W. A share is missing for a cycle until it is
compensated, and compensated with one that is not quite its equal, so W strays, and every later
change of demand counts N / W times. Only a new epoch puts that right.

Epochs. In a new epoch every limiter begins anew: value = own demand, weight = 1; pairs of an older
one are discarded, a newer one (serial arithmetic on 4 bits) is adopted at once. While the new
ratio converges (`settling_intervals`) the last estimate of the old one is held. A limiter begins
one

- when the pool holds mass that belongs to nobody any more: a peer that gave mass in this epoch is
  disconnected or was removed, or one has restarted;
- when it has itself counted `EPOCH_LOSSES` lost updates in this one (see above);
- when the present one is `EPOCH_INTERVALS` old, so that whatever has gone wrong (a restart that did
  not show, say) is put right in bounded time;
- when its pair has become too large or too small to be sent.

A peer that joins needs no epoch: it adopts the current one and brings its own demand and weight.

No storm of epochs: a limiter begins none before its present one is two settling times old (but for
the last reason). Of all who notice a death, only those that had mass of the dead one in the present
epoch react to it, so that the first one's epoch cures all; those that begin one before they hear
of the first give it the same number. A limiter that has heard nobody (at the start, or isolated)
has no say: it joins the first epoch that it hears of, and believes in nobody until that has had
time to settle.

Isolation. All peers together send `branching` updates an interval, so that silence of all of them
means isolation long before it shows on a single link: after 24 intervals nobody is connected.

Invariants, without loss and within one epoch: the sum over limiters and packets in flight of the
values is the sum of the demands, of the weights N, to within the rounding of doubles; an idle fleet
is exactly zero.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from random import Random

from drld.gossip.base import Fabric, LinkStats
from drld.gossip.link import SURVIVED_LOSSES, Link, Timeouts
from drld.gossip.mass import NOTHING, Mass, Pair
from drld.gossip.wire import EPOCH_MODULUS, MAX_VALUE
from drld.model import GlobalView, Update

MAX_COPIES = 8.0
"""How often a pair may count at most, the losses before it included."""
EPOCH_LOSSES = 2
"""Lost updates that a limiter counts before it begins a new epoch."""
EPOCH_INTERVALS = 1200
"""Oldest age of an epoch: a minute, at 50 ms."""


def newer(epoch: int, reference: int) -> bool:
    """Whether an epoch is newer than another; of two half the circle apart, the larger one is."""
    ahead = (epoch - reference) % EPOCH_MODULUS
    half = EPOCH_MODULUS // 2
    return 0 < ahead < half or (ahead == half and epoch > reference)


def settling_intervals(members: int, branching: int) -> int:
    """Intervals until the ratios of a new epoch agree to about one per cent of the total.

    The mean square of their deviations falls by branching + 1 in each interval: 2 log(N) to the
    base of branching + 1 brings it from that of one limiter with all the demand (N) to 1 / N, and
    three intervals more let the epoch and the last pairs arrive.
    """
    return 3 + math.ceil(2 * math.log(members) / math.log(branching + 1))


@dataclass(slots=True)
class _Peer(Link):
    """A peer and the newest of our epochs in which it gave mass."""

    generation: int = -1


class PushSum(Fabric):
    """`branching` random limiters each interval."""

    def _begin(self) -> None:
        self.mass = Mass()
        self.epoch = 0
        """As on the wire."""
        self._generation = 0
        """Counts our epochs, as their numbers on the wire come round again."""
        self._epoch_ns: int | None = None
        """When ours began, or when we joined it; None before."""
        self._anchored = False
        """Whether the epoch is one that others know of."""
        self._tainted = False
        """Whether there is mass of a removed peer or of an earlier life in the pool."""
        self._lost = 0
        """Updates lost in this epoch."""
        self._held: tuple[float, int] | None = None
        """The last settled estimate and its time."""
        self._heard_ns: int | None = None
        """When anybody was heard last."""
        self._connected: frozenset[str] = frozenset()
        self._scan_ns = 0
        """When to look for lost peers again."""
        self._order: list[str] = []
        """Peers that have not had their turn in this cycle."""
        self._links: dict[str, _Peer] = {}
        self._arrange()

    def publish(self, value: float, now_ns: int, rng: Random) -> list[tuple[str, Update]]:
        """Split the mass among this limiter and a few others.

        Raises:
            ValueError: the value is negative, not finite, or beyond what the wire carries.
        """
        if not 0 <= value <= MAX_VALUE:
            raise ValueError(f"a shared value is from 0 to {MAX_VALUE:g}, not {value}")
        self._look_around(now_ns)
        if self._epoch_is_due(now_ns):
            self._begin_epoch((self.epoch + 1) % EPOCH_MODULUS, now_ns)
        self.mass.change_own(value)
        targets = [(peer, self._links[peer]) for peer in self._pick(rng)]
        full = [link.both_ways(now_ns, self._timeouts) for _, link in targets]
        heard = [link.fresh(now_ns, self._timeouts) for _, link in targets]
        share, token = self.mass.split(sum(full), sum(heard) - sum(full))
        return [
            (peer, self._update(link, share if is_full else token if is_heard else NOTHING))
            for (peer, link), is_full, is_heard in zip(targets, full, heard, strict=True)
        ]

    def receive(self, peer: str, update: Update, now_ns: int) -> None:
        """Take in a peer's share, as often as its losses say."""
        link = self._links[peer]
        if update.quantity is not self.quantity:
            link.stats.rejected += 1
            return
        acceptance = link.accept(update, now_ns)
        if acceptance is None:
            return
        self._heard_ns = now_ns
        if not self._anchored:
            self._anchor(update.epoch, now_ns)
        elif update.weight > 0 and newer(update.epoch, self.epoch):
            self._begin_epoch(update.epoch, now_ns)
        if peer not in self._connected and link.connected(now_ns, self._timeouts):
            self._connected |= {peer}
        # Its old life left mass here, and the first pairs of the new one were discarded.
        self._tainted |= acceptance.restarted
        if update.weight == 0 or update.epoch != self.epoch:
            return
        self._lost += acceptance.lost
        lost = acceptance.lost if link.generation == self._generation else acceptance.lost / 2
        copies = min(1 + lost, MAX_COPIES)
        link.generation = self._generation
        self.mass.add(Pair(copies * update.value, copies * update.weight), len(self.peers))

    def view(self, now_ns: int) -> GlobalView:
        """The mean times the connected limiters, less one's own.

        Its age is the time since anybody was heard, or since the held estimate was made. While
        nothing is known nobody is connected.
        """
        self._look_around(now_ns)
        if self._connected and self._heard_ns is not None:
            if self._settled(now_ns):
                remote = self.mass.remote(len(self._connected) + 1)
                return GlobalView(remote, self._connected, age_ns=now_ns - self._heard_ns)
            if self._held is not None:
                remote, made_ns = self._held
                return GlobalView(remote, self._connected, age_ns=now_ns - made_ns)
        return GlobalView(remote=0.0, connected=frozenset(), age_ns=None)

    def set_peers(
        self,
        peers: Collection[str],
        now_ns: int,  # noqa: ARG002 - of the interface
    ) -> None:
        """Change the fleet; the mass of those that leave leaves with the next epoch."""
        for peer in set(self.peers) - set(peers):
            self._tainted |= self._links[peer].generation == self._generation
        self.peers = tuple(sorted(peers))
        self._arrange()
        self._connected &= set(self.peers)

    @property
    def links(self) -> Mapping[str, LinkStats]:
        """Statistics for each peer."""
        return {peer: link.stats for peer, link in self._links.items()}

    def _arrange(self) -> None:
        """Derive all that depends on who the peers are."""
        self._links = {peer: self._links.get(peer) or _Peer() for peer in self.peers}
        self._order = []
        branching = max(1, min(self.branching, len(self.peers)))
        cycle = max(1, math.ceil(len(self.peers) / branching))
        self._cycle_ns = cycle * self.interval_ns
        self._timeouts = Timeouts.of(self.interval_ns, self._cycle_ns)
        self._isolation_ns = (SURVIVED_LOSSES + 4) * self.interval_ns
        self._settling_ns = self.interval_ns * settling_intervals(len(self.peers) + 1, branching)

    def _update(self, link: Link, pair: Pair) -> Update:
        return Update(
            limit_id=self.limit_id,
            sequence=link.take_sequence(),
            quantity=self.quantity,
            epoch=self.epoch,
            value=pair.value,
            weight=pair.weight,
        )

    def _pick(self, rng: Random) -> list[str]:
        """The next peers in the shuffled order, nobody twice."""
        picked: list[str] = []
        for _ in range(min(self.branching, len(self.peers))):
            if not self._order:
                rest = [peer for peer in self.peers if peer not in picked]
                rng.shuffle(rest)
                self._order = picked + rest
            picked.append(self._order.pop())
        return picked

    def _look_around(self, now_ns: int) -> None:
        """Find out who is gone: all of them at once, or, once a cycle, each by itself."""
        if self._heard_ns is None or now_ns - self._heard_ns > self._isolation_ns:
            self._tainted |= bool(self._connected)
            self._connected = frozenset()
            self._anchored = False
        elif now_ns >= self._scan_ns:
            self._scan_ns = now_ns + self._cycle_ns
            self._connected = frozenset(
                peer for peer, link in self._links.items() if link.connected(now_ns, self._timeouts)
            )
            self._tainted |= any(
                link.generation == self._generation and peer not in self._connected
                for peer, link in self._links.items()
            )

    def _anchor(self, epoch: int, now_ns: int) -> None:
        """Join the epoch of the first one heard; nothing is known until it has settled."""
        self._anchored = True
        self._held = None
        if epoch != self.epoch:
            self._begin_epoch(epoch, now_ns)
        self._epoch_ns = now_ns

    def _epoch_is_due(self, now_ns: int) -> bool:
        if not self.mass.sound:
            return True
        if self._epoch_ns is None:
            return False
        age_ns = now_ns - self._epoch_ns
        if age_ns >= EPOCH_INTERVALS * self.interval_ns:
            return True
        due = self._tainted or self._lost >= EPOCH_LOSSES
        return due and age_ns >= 2 * self._settling_ns

    def _begin_epoch(self, epoch: int, now_ns: int) -> None:
        if self._connected and self._settled(now_ns):
            self._held = (self.mass.remote(len(self._connected) + 1), now_ns)
        self.epoch = epoch
        self._epoch_ns = now_ns
        self._generation += 1
        self._tainted = False
        self._lost = 0
        self.mass.restart()

    def _settled(self, now_ns: int) -> bool:
        return self._epoch_ns is not None and now_ns - self._epoch_ns >= self._settling_ns
