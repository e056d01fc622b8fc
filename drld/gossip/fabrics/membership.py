"""The peers of a limiter: which of them are connected, and which are the targets of a round.

All limits of a daemon share one membership. Each fabric has a subclass with updates of its own. Any
accepted update of any limit shows that its sender lives, so a quiescent limit sends none. A target
without an update in a round gets a *heartbeat*, an update of limit 0.

Rounds. Once an interval, all limits send their updates to the same peers, the round's *targets*:
all peers in a mesh, else `fanout` random peers. Every peer has its turn before any peer has another
one (a shuffled order). That bounds the time between two updates of a link.

Theory of operation (docs/conservative-rule.md; paper, section 5.6). Every update says whether its
sender hears its receiver. If so it is a *confirmation*, else a denial. When a link breaks in either
direction, both ends give up the other's share first. Only later they forget its demand.

The times follow from the cycle C, the longest time in which a sender serves all its peers. It is
one interval in a mesh, else ceil((N - 1) / fanout) intervals. Two consecutive updates of a link are
less than two cycles apart. With I the interval:

    fresh         an update came within S = 2 C + 2 I; less than that hardly occurs by loss
    hears a peer  while the peer is fresh; updates to the peer then say so
    connected     a confirmation came within D = 18 C - I: the peer's share is in the limit
    counted       a confirmation came within T = S + 20 C: the peer's demand is in the total
    isolated      no update of any peer came within 24 I, although all peers together send 24
                  fanout updates in that time: no peer is connected, long before each link shows it

Order. Let a peer use our share. Then a confirmation of ours reached it within D. We sent that
because an update of the peer had reached us within S. So its last update reached us at most S + D
ago. We count its demand for T from then on, and T - S - D = 2 C + I is left for the delay of
packets. A dead limiter's datapath falls back to its static share within 20 I, which is less than T.

We know only that a confirmation arrived after the socket was last drained, so we date it to that
moment (`drained`). A daemon that was frozen finds old confirmations in its socket; they count from
before it froze.

A peer's share counts once the peer has been connected for `rise_ns`, because all limiters know its
demand by then (`drld.limiter`). In a mesh, D allows 17 lost updates in a row: 2e-7 at 40 % loss.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Set
from dataclasses import dataclass
from random import Random
from typing import Any

from drld.gossip.fabrics.link import Link, LinkStats
from drld.gossip.wire.sequence import Numbering
from drld.model import HEARTBEAT, Update

_NEVER = 1 << 62

SURVIVED_LOSSES = 20
"""Updates in a row that may be lost before their sender's demand is forgotten."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The times of the theory above."""

    fresh_ns: int
    """S: the time for which a peer without a new update counts as heard, ns."""
    silence_ns: int
    """T: the time for which the demand of a peer without a confirmation counts, ns."""
    denial_ns: int
    """D: the time for which a peer without a confirmation stays connected, ns."""

    @classmethod
    def of(cls, interval_ns: int, cycle_ns: int) -> Timeouts:
        """The times that follow from the interval I and the cycle C."""
        fresh_ns = 2 * cycle_ns + 2 * interval_ns
        silence_ns = fresh_ns + SURVIVED_LOSSES * cycle_ns
        return cls(fresh_ns, silence_ns, silence_ns - fresh_ns - 2 * cycle_ns - interval_ns)


@dataclass(slots=True)
class _Peer:
    """The times of a peer's updates."""

    heard_ns: int | None = None
    """Time at which the peer's newest update was read."""
    arrived_ns: int | None = None
    """The earliest time at which its newest update may have arrived."""
    confirmed_ns: int | None = None
    """The earliest time at which its newest confirmation may have arrived."""
    connected_ns: int = 0
    """The time since which confirmations have come without a pause of D."""
    denies: bool = True
    """Whether the peer's newest update denies that the peer hears this limiter."""


class Membership(ABC):
    """The peers of a limiter."""

    def __init__(
        self, name: str, peers: Collection[str], fanout: int | None, interval_ns: int
    ) -> None:
        """`fanout` peers (None: all of them) get updates in each `interval_ns`."""
        self.name = name
        self.interval_ns = interval_ns
        self._fanout = fanout
        self._isolation_ns = (SURVIVED_LOSSES + 4) * interval_ns
        self.numbering = Numbering()
        """The sequence numbers of all limits."""
        self.on_change: Callable[[], None] = lambda: None
        """Called whenever `connected` or `steady` changes, perhaps in the middle of a call."""
        self._set_sizes(peers)
        self._begin()

    def _begin(self) -> None:
        """Begin without an update of any peer."""
        self.unnamed = 0
        """Connected peers beyond those that `connected` names; 0 but in a tree."""
        self._peers = {peer: _Peer() for peer in self.peers}
        self._heartbeats: dict[str, Link] = {}
        """The links of heartbeats, by peer; made when the first one is sent or received."""
        self._order: list[str] = []
        """Peers that have not had their turn in this cycle."""
        self._heard_ns: int | None = None
        """Time at which the newest update of any peer was read."""
        self._connected: frozenset[str] = frozenset()
        self._connected_until_ns = -1
        """Time at which the first connected peer leaves, if no more updates come."""
        self._leaving: dict[str, int] = {}
        """Peers that are no longer connected, and the time until which their demand counts."""
        self._drained_ns: int | None = None
        """Time at which the socket was last empty."""
        self._looked_ns: int | None = None
        """The time of the last call of `connected`, which a round makes for every peer."""
        self._doubtful: set[str] = set()
        """Peers whose newest updates may have connected or disconnected them."""
        self._changed_ns = 0
        self._steady = False

    def _set_sizes(self, peers: Collection[str]) -> None:
        """Set all that depends on the set of peers alone."""
        self.peers = tuple(sorted(peers))
        self.branching = max(1, min(self._fanout or len(peers), len(peers)))
        """The number of targets of a round, if there are peers."""
        cycle_ns = max(1, math.ceil(len(peers) / self.branching)) * self.interval_ns
        self.timeouts = Timeouts.of(self.interval_ns, cycle_ns)
        self.rise_ns = 4 * self.interval_ns
        """The time for which limiters must have been connected before their shares count."""

    def declare(self, peer: str, gone: bool) -> None:  # noqa: B027 -- most fabrics do nothing
        """Take the probes' finding that a peer is gone (dead, or has left), or that it is not.

        A verdict neither connects nor disconnects a peer. Only updates do, in an order that is
        proved (docs/conservative-rule.md). A tree does not ask a peer that is gone to be a parent.
        """

    @property
    def forgotten_ns(self) -> int:
        """The time after a limiter's last update from which it counts nowhere, ns."""
        return self.timeouts.silence_ns + self.interval_ns

    @property
    def detection_ns(self) -> int:
        """The detection time, ns: see `Fabric.detection_ns`."""
        return self.timeouts.silence_ns + self.rise_ns + self.interval_ns

    def set_peers(self, peers: Collection[str]) -> None:
        """Replace the set of peers, and keep the state of those that stay."""
        if set(peers) == set(self.peers):
            return
        self._set_sizes(peers)
        self.numbering.retain(self.peers)
        new = [peer for peer in self.peers if peer not in self._peers]
        self._peers = {peer: self._peers.get(peer) or _Peer() for peer in self.peers}
        self._order = new + [peer for peer in self._order if peer in self._peers]
        self._heartbeats = {k: v for k, v in self._heartbeats.items() if k in self._peers}
        # A reload does not shorten the time for which the demand of a leaving peer counts.
        # `&` with a view of keys would make a set that can change.
        self._connected = self._connected.intersection(self._peers)
        self._leaving = {k: v for k, v in self._leaving.items() if k in self._peers}
        # The next call of `connected` looks at all peers.
        self._looked_ns, self._connected_until_ns, self._doubtful = None, -1, set()
        self._change()

    def forget(self) -> None:
        """Forget the updates of all peers; sequence numbers continue."""
        self._change()
        self._begin()

    def _change(self) -> None:
        """Announce that `connected` or `steady` changes."""
        self.on_change()

    def neighbours(self) -> list[str]:
        """The receivers of pressing news between two rounds; each once."""
        return list(self.peers)

    def targets(self, rng: Random) -> list[str]:
        """The targets of this round, each once; each call begins another round."""
        if self.branching >= len(self.peers):
            return list(self.peers)
        picked: list[str] = []
        for _ in range(self.branching):
            if not self._order:
                rest = [peer for peer in self.peers if peer not in picked]
                rng.shuffle(rest)
                self._order = picked + rest
            picked.append(self._order.pop())
        return picked

    @abstractmethod
    def heartbeat(self, peer: str, now_ns: int) -> Update:
        """The update of limit 0, of the fabric's type, for a target without another update."""

    def receive(self, peer: str, update: Any, now_ns: int) -> None:
        """Receive a heartbeat."""
        if self._heartbeat_link(peer).accept(update.sequence, self.round(now_ns)) is not None:
            self.take(peer, update, now_ns)

    def round(self, now_ns: int) -> int:
        """The number of the interval that contains this time."""
        return now_ns // self.interval_ns

    def on_session(self, peer: str, now_ns: int) -> Collection[int]:  # noqa: ARG002 -- a tree needs it
        """A new incarnation of the peer has a session: its sequence numbers begin again.

        Returns the limits that used the last session, for `Fabric.on_session`.
        """
        return self.numbering.meet(peer)

    def take(self, peer: str, update: Any, now_ns: int) -> None:
        """Record what an accepted update, of any limit, shows of its sender."""
        self.hear(peer, update.hears, now_ns)

    def hear(self, peer: str, hears_us: bool, now_ns: int) -> None:
        """Record that an update came from a peer, and whether the peer hears this limiter."""
        heard = self._peers[peer]
        heard.heard_ns, heard.denies = now_ns, not hears_us
        heard.arrived_ns = self.arrived_ns(now_ns)
        if hears_us:
            before_ns = heard.confirmed_ns
            if before_ns is None or now_ns - before_ns > self.timeouts.denial_ns:
                heard.connected_ns = now_ns
            heard.confirmed_ns = heard.arrived_ns
        self._heard_ns = now_ns
        if not hears_us or peer not in self._connected:
            self._doubtful.add(peer)

    def drained(self, now_ns: int) -> None:
        """Note that the socket is empty: every update that has arrived by now was received."""
        self._drained_ns = now_ns

    def arrived_ns(self, now_ns: int) -> int:
        """The earliest time at which an update that is received now may have arrived."""
        return now_ns if self._drained_ns is None else min(now_ns, self._drained_ns)

    def fresh(self, peer: str, now_ns: int) -> bool:
        """Whether this limiter hears the peer."""
        heard_ns = self._peers[peer].heard_ns
        return heard_ns is not None and now_ns - heard_ns <= self.timeouts.fresh_ns

    def both_ways(self, peer: str, now_ns: int) -> bool:
        """Whether this limiter hears the peer, and the peer's newest update is a confirmation."""
        return not self._peers[peer].denies and self.fresh(peer, now_ns)

    def connected(self, now_ns: int) -> frozenset[str]:
        """The connected peers.

        A peer is looked at only if its newest updates may have changed its state, or if the first
        connected one may have been silent for too long.
        """
        connected = before = self._connected
        if now_ns == self._looked_ns and not self._doubtful:
            return connected
        self._looked_ns = now_ns
        if self._heard_ns is None or now_ns - self._heard_ns > self._isolation_ns:
            connected = frozenset()
            self._connected_until_ns = -1
        elif now_ns > self._connected_until_ns:
            self._connected_until_ns = _NEVER
            connected = self._those_connected(self.peers, now_ns)
        elif self._doubtful:
            kept = self._those_connected(self._doubtful, now_ns)
            if kept != self._doubtful & connected:
                connected = connected - self._doubtful | kept
        self._doubtful.clear()
        if changed := connected is not before and connected != before:
            self._connected = connected
            for peer in before - connected:
                confirmed_ns = self._peers[peer].confirmed_ns
                if confirmed_ns is not None:
                    self._leaving[peer] = confirmed_ns + self.timeouts.silence_ns
        for peer, until_ns in [*self._leaving.items()]:
            if now_ns > until_ns or peer in connected:
                del self._leaving[peer]
                changed = True
        self._note_change(changed, now_ns)
        return self._connected

    def leaving(self, now_ns: int) -> Set[str]:
        """The peers that are no longer connected, but whose demand still counts."""
        self.connected(now_ns)
        return self._leaving.keys()

    def _note_change(self, changed: bool, now_ns: int) -> None:
        """Announce a change, if there is one, after an update of `connected`."""
        if changed:
            self._changed_ns = now_ns
        lasting_ns = max(self.timeouts.fresh_ns, self.rise_ns + self.interval_ns)
        steady = bool(self._connected) and now_ns - self._changed_ns >= lasting_ns
        if changed or steady != self._steady:
            self._steady = steady
            self._change()

    def _those_connected(self, peers: Iterable[str], now_ns: int) -> frozenset[str]:
        """The connected ones of these peers; sets the time at which the first of them leaves."""
        found = []
        for name in peers:
            confirmed_ns = self._peers[name].confirmed_ns
            if confirmed_ns is None:
                continue
            until_ns = confirmed_ns + self.timeouts.denial_ns
            if now_ns <= until_ns:
                found.append(name)
                self._connected_until_ns = min(self._connected_until_ns, until_ns)
        return frozenset(found)

    def steady(self, now_ns: int) -> bool:
        """Whether the same peers, at least one, have been connected for S and for `rise_ns`.

        Then each of them has had its turn with us: if no update of a limit came from a peer, the
        peer has no demand for it. And the shares of all of them count.
        """
        self.connected(now_ns)
        return self._steady

    def heard_ns(self, peer: str) -> int | None:
        """The time at which a peer's newest update was read, ns; None: there was none."""
        return self._peers[peer].heard_ns

    def connected_ns(self, peer: str) -> int:
        """The time since which a connected peer has been connected, ns."""
        return self._peers[peer].connected_ns

    def age_ns(self, now_ns: int) -> int | None:
        """The time since the newest update of any peer, ns; None: there was none."""
        return None if self._heard_ns is None else now_ns - self._heard_ns

    def heartbeats(self, peer: str) -> LinkStats:
        """Statistics of the heartbeats of a peer."""
        return self._heartbeats.get(peer) or LinkStats()

    def _heartbeat_link(self, peer: str) -> Link:
        link = self._heartbeats.get(peer)
        if link is None:
            link = self._heartbeats[peer] = Link(sequences=self.numbering.of(peer, HEARTBEAT))
        return link
