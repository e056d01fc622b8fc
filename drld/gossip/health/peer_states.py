"""The state of every peer's present incarnation (*life*): alive, suspect, dead or left.

Theory of operation (SWIM, sections 3 and 4: Das, Gupta, Motivala 2002; Lifeguard: Dadgar,
Phillips, Currey 2017). A peer that does not answer is suspected. It is dead once the suspicion has
lasted for `ProbeTimes.suspicion_ns` without a refutation. Rumours about one life are merged
(`drld.gossip.health.broadcast_queue`).

Lives. A rumour about one life says nothing about another. A handshake proves a life (`meet`) and
replaces any older state. A rumour about an unknown life counts only if it says that this life is
alive while the known one is not. So a restarted limiter is not declared dead for its last life. The
last few replaced lives are remembered, and rumours about them are ignored. A message from the peer
itself belongs to the life that the handshake proved, which then is the present one.

Invariants: between two `meet`s the standing of a life never falls. A peer that was never heard of
is never suspected. A suspicion lasts at least `suspicion_min_ns` on this limiter's clock, without
the time that was `postpone`d.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from drld.gossip.health.broadcast_queue import merged, outdated, subject
from drld.gossip.health.probe_times import ProbeTimes
from drld.gossip.wire.control_codec import Rumour, State

_REMEMBERED = 4
"""Number of former lives remembered of each limiter."""


@dataclass(slots=True)
class _Member:
    name: str
    known: Rumour | None = None
    met: int = 0
    """The life that the last handshake proved; 0: none."""
    retired: deque[int] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    heard_ns: int | None = None
    """Time of the last control message from the peer, ns."""
    suspected_ns: int = 0
    """Begin of the suspicion, plus all postponements."""


class PeerStates:
    """The states of all peers."""

    def __init__(self, peers: Collection[str], times: ProbeTimes) -> None:
        self.changed: set[str] = set()
        """Peers with a changed state; the user of this set clears it."""
        self._members: dict[str, _Member] = {}
        self._suspects: dict[str, _Member] = {}
        self.set_peers(peers, times)

    def set_peers(self, peers: Collection[str], times: ProbeTimes) -> None:
        """Forget all other peers; `changed` has the peers that stay, to be checked again."""
        self.times = times
        self.changed = {peer for peer in peers if peer in self._members}
        self._members = {peer: self._members.get(peer) or _Member(peer) for peer in peers}
        self._by_subject = {subject(peer): member for peer, member in self._members.items()}
        self._suspects = {k: v for k, v in self._suspects.items() if k in self._members}

    def state(self, peer: str) -> State | None:
        """The state of a peer; None: there is no news of the peer yet."""
        known = self._members[peer].known
        return None if known is None else known.state

    def known(self, peer: str) -> Rumour | None:
        """The state of a peer as a rumour; None: there is no news of the peer yet."""
        return self._members[peer].known

    def peer(self, subject: int) -> str | None:
        """The name of the peer with this hash."""
        member = self._by_subject.get(subject)
        return None if member is None else member.name

    def meet(self, peer: str, life: int, now_ns: int) -> Rumour | None:
        """A handshake proved a life of a peer; return a rumour to send, if it is news."""
        member = self._members[peer]
        member.met, member.heard_ns = life, now_ns
        old = member.known
        if old is not None and old.life == life:
            return None
        self._hold(member, Rumour(subject(peer), life, 0, State.ALIVE), now_ns)
        return None if old is None else member.known

    def hear(self, peer: str, now_ns: int) -> None:
        """A control message came from a peer, and so from the life that the handshake proved."""
        member = self._members[peer]
        member.heard_ns = now_ns
        if member.met and (member.known is None or member.known.life != member.met):
            self._hold(member, Rumour(subject(peer), member.met, 0, State.ALIVE), now_ns)

    def take(self, rumour: Rumour, now_ns: int) -> Rumour | None:
        """Merge a rumour about a peer; return a rumour that is news here, or to the sender."""
        member = self._by_subject.get(rumour.subject)
        if member is None or rumour.life in member.retired:
            return None
        known = member.known
        if known is not None:
            if known.life != rumour.life:
                if rumour.state is not State.ALIVE or known.state is State.ALIVE:
                    return None
            elif (new := merged(known, rumour)) is known:
                return known if outdated(rumour, known) else None
            else:
                rumour = new
        self._hold(member, rumour, now_ns)
        return rumour

    def accuse(self, peer: str, bit: int, now_ns: int) -> Rumour | None:
        """A peer did not answer; return the suspicion, if it is news."""
        known = self.known(peer)
        if known is None or known.state not in (State.ALIVE, State.SUSPECT):
            return None
        return self.take(replace(known, state=State.SUSPECT, accusers=bit), now_ns)

    def lasting(self, now_ns: int) -> Iterator[Rumour]:
        """Suspicions that may become verdicts within the spread time R."""
        young_ns = self.times.suspicion_min_ns - self.times.spread_ns
        for member in self._suspects.values():
            assert member.known is not None
            if now_ns - member.suspected_ns >= young_ns:
                yield member.known

    def expire(self, now_ns: int) -> Iterator[Rumour]:
        """Declare peers dead that were suspected for long enough; yield the rumours to send."""
        for member in list(self._suspects.values()):
            known = member.known
            assert known is not None
            lasting_ns = self.times.suspicion_ns(max(0, known.accusers.bit_count() - 1))
            heard_ns = member.heard_ns
            if now_ns - member.suspected_ns < lasting_ns:
                continue
            # The peer may not have heard of the suspicion yet.
            if heard_ns is not None and now_ns - heard_ns < self.times.isolation_ns:
                continue
            dead = replace(known, state=State.DEAD, accusers=0)
            self._hold(member, dead, now_ns)
            yield dead

    def postpone(self, span_ns: int) -> None:
        """Extend all suspicions by a time in which no refutation could arrive."""
        for member in self._suspects.values():
            member.suspected_ns += span_ns

    def _hold(self, member: _Member, rumour: Rumour, now_ns: int) -> None:
        old, member.known = member.known, rumour
        if old is None or old.life != rumour.life:
            if old is not None:
                member.retired.append(old.life)
            if rumour.life in member.retired:
                member.retired.remove(rumour.life)
        if old is None or (old.life, old.state) != (rumour.life, rumour.state):
            self.changed.add(member.name)
        if rumour.state is not State.SUSPECT:
            self._suspects.pop(member.name, None)
        elif (
            member.name not in self._suspects
            or old is None
            or (old.life, old.counter) != (rumour.life, rumour.counter)
        ):
            self._suspects[member.name] = member
            member.suspected_ns = now_ns
