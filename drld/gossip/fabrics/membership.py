"""The peers of a limiter: which of them are connected, and which are the targets of a round.

All limits of a daemon share one membership. Any accepted update of any limit shows that its sender
lives, so a quiescent limit sends none. A target that would get no update in a round gets a
heartbeat instead, an update of limit 0. Each fabric has a membership and updates of its own.

Rounds. Once an interval all limits that have something to tell send it to the same peers, the
round's targets: all peers in a mesh; else `fanout` peers at random, but without repetition until
all have had their turn (a shuffled order), which bounds the time between two updates of a link.

Theory of operation (docs/conservative-rule.md; paper, section 5.6). Every update says whether its
sender hears its receiver. If so, it confirms that its sender heard us a moment ago; else it denies
it. A lost peer's share leaves the limit first, on both ends of a link, whichever way it broke; and
only then its demand leaves the total.

The times follow from C, the longest a sender takes to get round all its peers: one interval in a
mesh, ceil((N - 1) / fanout) intervals else. Two consecutive updates of a link are less than two
cycles apart. With I the interval:

    fresh         heard within S = 2 C + 2 I: hardly an update is lost
    hears a peer  (and says so) while it is fresh
    connected     confirmed within D = 18 C - I: its share is in the limit
    counted       confirmed within T = S + 20 C: its demand is in the total
    isolated      nobody was heard for 24 I, in which all peers together send 24 fanout updates:
                  nobody is connected, long before it would show on each link

Order. A peer that uses our share has heard within D that we hear it. We said so because we had
heard it within S. So its last update reached us S + D ago at the most, and we count its demand for
T from then on: T - S - D = 2 C + I is left for the delay of packets. A dead limiter's datapath
falls back to its static share after 20 I at the most, which is less than T.

We know only that a confirmation arrived after the socket was last drained, so we date it to that
moment. A daemon that was frozen finds old ones in the socket; they count from before it froze
(`drained`).

The share of a peer counts when the peer has been connected for `rise_ns`, because its demand is
known to all by then (`drld.limiter`). D lets 17 updates in a row be lost in a mesh: 2e-7 at 40 %
loss.
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
"""Updates in a row that may be lost before what their sender wants is forgotten."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long silence and denial may last, ns."""

    fresh_ns: int
    """S."""
    silence_ns: int
    """T."""
    denial_ns: int
    """D."""

    @classmethod
    def of(cls, interval_ns: int, cycle_ns: int) -> Timeouts:
        """Those that follow from the interval and the cycle."""
        fresh_ns = 2 * cycle_ns + 2 * interval_ns
        silence_ns = fresh_ns + SURVIVED_LOSSES * cycle_ns
        return cls(fresh_ns, silence_ns, silence_ns - fresh_ns - 2 * cycle_ns - interval_ns)


@dataclass(slots=True)
class _Peer:
    """What was heard of a peer, and when."""

    heard_ns: int | None = None
    confirmed_ns: int | None = None
    """When it last said that it hears us."""
    connected_ns: int = 0
    """Since when it has said so without a pause of D, ns."""
    denies: bool = True
    """What its newest update says."""


class Membership(ABC):
    """What a limiter knows of its peers."""

    def __init__(
        self, name: str, peers: Collection[str], fanout: int | None, interval_ns: int
    ) -> None:
        """`fanout` peers (None: all of them) are told something in each `interval_ns`."""
        self.name = name
        self.interval_ns = interval_ns
        self._fanout = fanout
        self._isolation_ns = (SURVIVED_LOSSES + 4) * interval_ns
        self.numbering = Numbering()
        """The sequence numbers of all limits."""
        self.on_change: Callable[[], None] = lambda: None
        """Called whenever `connected` or `steady` changes, perhaps in the middle of a call."""
        self._size_up(peers)
        self._begin()

    def _begin(self) -> None:
        """Know the peers' names, and nothing more."""
        self.unnamed = 0
        """Connected peers beyond those that `connected` names, if this membership knows such."""
        self._peers = {peer: _Peer() for peer in self.peers}
        self._heartbeats: dict[str, Link] = {}
        """Of those that were ever sent a heartbeat, or sent one."""
        self._order: list[str] = []
        """Peers that have not had their turn in this cycle."""
        self._heard_ns: int | None = None
        """When anybody was heard last."""
        self._connected: frozenset[str] = frozenset()
        self._connected_until_ns = -1
        """When one of them may be connected no longer, if nothing more is heard of it."""
        self._leaving: dict[str, int] = {}
        """Peers that are connected no longer, and until when their demand counts."""
        self._drained_ns: int | None = None
        """When the socket was last empty."""
        self._looked_ns: int | None = None
        """When it was last looked at who is connected: it is asked for every peer in a round."""
        self._doubtful: set[str] = set()
        """Peers that may have been connected, or disconnected, by what was heard of them."""
        self._changed_ns = 0
        self._steady = False

    def _size_up(self, peers: Collection[str]) -> None:
        """Set what depends on who the peers are, and on nothing else."""
        self.peers = tuple(sorted(peers))
        self.branching = max(1, min(self._fanout or len(peers), len(peers)))
        """Peers told something in each round, if there are any."""
        cycle_ns = max(1, math.ceil(len(peers) / self.branching)) * self.interval_ns
        self.timeouts = Timeouts.of(self.interval_ns, cycle_ns)
        self.rise_ns = 4 * self.interval_ns
        """For how long limiters must have been connected before their shares count."""

    def declare(self, peer: str, gone: bool) -> None:  # noqa: B027 -- nothing is to be done
        """Probes found that a peer is dead or has left, or that it is not.

        It makes nobody connected, or disconnected: that is for updates to say, in an order that is
        proved (docs/conservative-rule.md). A tree asks nobody to be a parent who is gone.
        """

    @property
    def forgotten_ns(self) -> int:
        """How long after the last word of a limiter nothing of it counts any more, ns."""
        return self.timeouts.silence_ns + self.interval_ns

    @property
    def detection_ns(self) -> int:
        """The detection time: how long after the last event all are counted as they are, ns."""
        return self.timeouts.silence_ns + self.rise_ns + self.interval_ns

    def set_peers(self, peers: Collection[str]) -> None:
        """Have these peers from now on; all that is known is kept, but of peers that go."""
        if set(peers) == set(self.peers):
            return
        self._size_up(peers)
        self.numbering.retain(self.peers)
        new = [peer for peer in self.peers if peer not in self._peers]
        self._peers = {peer: self._peers.get(peer) or _Peer() for peer in self.peers}
        self._order = new + [peer for peer in self._order if peer in self._peers]
        self._heartbeats = {k: v for k, v in self._heartbeats.items() if k in self._peers}
        # Who has been connected leaves in order, whatever is reloaded meanwhile.
        self._connected &= self._peers.keys()
        self._leaving = {k: v for k, v in self._leaving.items() if k in self._peers}
        # Look at all of them again.
        self._looked_ns, self._connected_until_ns, self._doubtful = None, -1, set()
        self._change()

    def forget(self) -> None:
        """Forget what was heard of all peers; sequence numbers go on."""
        self._change()
        self._begin()

    def _change(self) -> None:
        """Tell that `connected` or `steady` changes."""
        self.on_change()

    def neighbours(self) -> list[str]:
        """Whom pressing news is for, between two rounds; each once."""
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
        """What to tell a target that would hear of no limit: an update of the fabric's type."""

    def receive(self, peer: str, update: Any, now_ns: int) -> None:
        """Take in a heartbeat."""
        if self._heartbeat_link(peer).accept(update.sequence, self.round(now_ns)) is not None:
            self.take(peer, update, now_ns)

    def round(self, now_ns: int) -> int:
        """The number of a round, whenever it began."""
        return now_ns // self.interval_ns

    def on_session(self, peer: str, now_ns: int) -> Collection[int]:  # noqa: ARG002 -- may matter
        """A new incarnation of the peer has a session: its sequence numbers begin again.

        Returns the limits to tell (`Fabric.on_session`): those that used the last session.
        """
        return self.numbering.meet(peer)

    def take(self, peer: str, update: Any, now_ns: int) -> None:
        """Note what an update of the fabric's type, of any limit, says of its sender."""
        self.hear(peer, update.hears, now_ns)

    def hear(self, peer: str, hears_us: bool, now_ns: int) -> None:
        """Note that an update came from a peer, and whether it hears us."""
        heard = self._peers[peer]
        heard.heard_ns, heard.denies = now_ns, not hears_us
        if hears_us:
            before_ns = heard.confirmed_ns
            if before_ns is None or now_ns - before_ns > self.timeouts.denial_ns:
                heard.connected_ns = now_ns
            heard.confirmed_ns = self.arrived_ns(now_ns)
        self._heard_ns = now_ns
        if not hears_us or peer not in self._connected:
            self._doubtful.add(peer)

    def drained(self, now_ns: int) -> None:
        """All that had arrived by now was taken in."""
        self._drained_ns = now_ns

    def arrived_ns(self, now_ns: int) -> int:
        """The earliest time at which what is taken in now may have arrived."""
        return now_ns if self._drained_ns is None else min(now_ns, self._drained_ns)

    def fresh(self, peer: str, now_ns: int) -> bool:
        """Whether we hear it."""
        heard_ns = self._peers[peer].heard_ns
        return heard_ns is not None and now_ns - heard_ns <= self.timeouts.fresh_ns

    def both_ways(self, peer: str, now_ns: int) -> bool:
        """Whether we hear it, and it says the same of us."""
        return not self._peers[peer].denies and self.fresh(peer, now_ns)

    def connected(self, now_ns: int) -> frozenset[str]:
        """Peers with which updates flow both ways, as far as is known under loss."""
        connected = self._connected
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
        changed = connected is not self._connected and connected != self._connected
        if changed:
            for peer in self._connected - connected:
                confirmed_ns = self._peers[peer].confirmed_ns
                if confirmed_ns is not None:
                    self._leaving[peer] = confirmed_ns + self.timeouts.silence_ns
            self._connected = connected
        left = [
            peer
            for peer, until_ns in self._leaving.items()
            if now_ns > until_ns or peer in self._connected
        ]
        for peer in left:
            del self._leaving[peer]
            changed = True
        self._note_change(changed, now_ns)
        return self._connected

    def leaving(self, now_ns: int) -> Set[str]:
        """Peers that are connected no longer, and whose demand counts all the same."""
        self.connected(now_ns)
        return self._leaving.keys()

    def _note_change(self, changed: bool, now_ns: int) -> None:
        """Tell of a change, after a look at who is connected."""
        if changed:
            self._changed_ns = now_ns
        lasting_ns = max(self.timeouts.fresh_ns, self.rise_ns + self.interval_ns)
        steady = bool(self._connected) and now_ns - self._changed_ns >= lasting_ns
        if changed or steady != self._steady:
            self._steady = steady
            self._change()

    def _those_connected(self, peers: Iterable[str], now_ns: int) -> frozenset[str]:
        """Which of these are; notes when the first of them may be no longer."""
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
        """Whether the same peers, and not none, have been connected for S, and for `rise_ns`.

        Each of them has had its turn with us, so that a limit of which we heard nothing is one
        where it has no traffic; and the shares of all count.
        """
        self.connected(now_ns)
        return self._steady

    def heard_ns(self, peer: str) -> int | None:
        """When a peer was heard last."""
        return self._peers[peer].heard_ns

    def connected_ns(self, peer: str) -> int:
        """Since when a connected peer has been connected, whether it was looked at or not, ns."""
        return self._peers[peer].connected_ns

    def age_ns(self, now_ns: int) -> int | None:
        """Time since any peer was heard, ns; None: none was."""
        return None if self._heard_ns is None else now_ns - self._heard_ns

    def heartbeats(self, peer: str) -> LinkStats:
        """Statistics of the heartbeats of a peer."""
        return self._heartbeats.get(peer) or LinkStats()

    def _heartbeat_link(self, peer: str) -> Link:
        link = self._heartbeats.get(peer)
        if link is None:
            link = self._heartbeats[peer] = Link(sequences=self.numbering.of(peer, HEARTBEAT))
        return link
