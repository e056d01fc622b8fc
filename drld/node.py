"""A limiter's part in its fleet: peers, their health and sessions, messages and rounds.

The node receives messages and passes each on by its kind: to its own handlers, or to those that the
engine and the planes have added. It reads the socket at the start of a tick, not when a message
arrives. Only ticks use updates, and a wake-up for each datagram would cost more than the rest of an
idle daemon.

Peers that leave. A peer that a reload removes from the configuration is *departed*. The limiter
sends it nothing more, and keeps it in the membership as a silent peer until it counts nowhere in
the fleet (`Membership.forgotten_ns`). Only then are the limits divided by one limiter less, because
by then all others have released its share. A peer that joins counts at once
(docs/conservative-rule.md). Peers that stay keep their connections and ages, unless the settings of
the fabric change or the limiter has left its fleet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from random import Random
from typing import Any, Protocol, TypeAlias

from drld.gossip.fabrics import FABRICS
from drld.gossip.fabrics.membership import Membership
from drld.gossip.health.config_digest import ConfigDigest
from drld.gossip.health.probe_times import ProbeTimes
from drld.gossip.health.probes import Probes
from drld.gossip.wire.control_codec import Control, Kind, State
from drld.gossip.wire.messenger import Messenger
from drld.gossip.wire.sequence import Numbering
from drld.gossip.wire.session import Met
from drld.gossip.wire.update_codec import MAX_UPDATES
from drld.model import Update
from drld.planes.plane import Handler
from drld.shared_settings import shared_settings
from drld.spec import GossipSpec, LimiterSpec, LimitSpec

Publish: TypeAlias = Callable[[Sequence[str], int], Sequence[tuple[str, Update]]]
"""Returns a limit's updates and their receivers, for the targets of a round, at a time, ns."""


class Listener(Protocol):
    """The receiver of the node's events about peers."""

    def on_session(self, peer: str, limits: Collection[int]) -> None:
        """A session with another life of the peer has begun; these limits used the last one."""

    def on_peer_change(self) -> None:
        """Other peers are connected than before; it may come in the middle of a tick."""


def membership(name: str, members: Collection[str], gossip: GossipSpec) -> Membership:
    """A limiter's new membership; `members` are the names of all limiters, its own included."""
    return FABRICS[gossip.fabric].make_membership(
        name, set(members) - {name}, gossip.branching, gossip.interval_ns
    )


def next_due_ns(due_ns: int, now_ns: int, interval_ns: int) -> int:
    """The next due time, ns. After a stall it counts from now: missed ticks are not made up."""
    late = now_ns - due_ns >= interval_ns
    return now_ns + interval_ns if late else due_ns + interval_ns


class Node:
    """One limiter's part in its fleet."""

    def __init__(
        self, spec: LimiterSpec, transport: Messenger, rng: Random, listener: Listener
    ) -> None:
        self.spec = spec
        self.transport = transport
        self.handlers: dict[int, Handler] = {
            Kind.HELLO: self._take_session,
            **dict.fromkeys((Kind.PROBE, Kind.ACK, Kind.PROBE_REQUEST), self._take_control),
        }
        """Handlers by the kind of message."""
        self.departed: dict[str, int] = {}
        """Peers that a reload removed, and the time until which the membership keeps them, ns."""
        self._lives: dict[str, int] = {}
        """Incarnation of each peer that has a session."""
        self.probes: Probes | None = None
        """The prober; None: the configuration turns probes off."""
        self.judged: set[str] = set()
        """Peers with a new verdict. The reader clears the set."""
        self.round_due_ns = 0
        self._rng = rng
        self._listener = listener
        self._numbering = Numbering(partial(transport.refuse, "replayed"))
        self.use(membership(spec.name, spec.members, spec.gossip))
        self._set_probes(0, ())

    def use(self, membership: Membership) -> None:
        """Have this membership from now on; limits that were made before have another."""
        membership.numbering = self._numbering
        membership.on_change = self._listener.on_peer_change
        self.membership = membership

    def stop(self) -> None:
        """Say farewell to the peers and close the socket; safe to call twice."""
        probes, self.probes = self.probes, None
        if probes is not None:
            for peer, message in probes.farewell(self._rng):
                self.transport.send(peer, message.kind, message)
        self.transport.close()

    def members_after(self, spec: LimiterSpec) -> set[str]:
        """Return all limiters of the fleet after a reload, departed ones included."""
        return {*self.membership.peers, *spec.members}

    def reconfigure(self, spec: LimiterSpec, now_ns: int) -> None:
        """Take over a changed configuration; the transport has its addresses already."""
        old, self.spec = self.spec, spec
        fleet, members = self.membership, self.members_after(spec)
        until_ns = now_ns + fleet.forgotten_ns
        self.departed = {
            peer: self.departed.get(peer, until_ns) for peer in sorted(members - spec.members)
        }
        if spec.gossip != old.gossip:
            self.use(fleet := membership(spec.name, members, spec.gossip))
        else:
            fleet.set_peers(members - {spec.name})
            if old.joined and not spec.joined:
                fleet.forget()
        if spec.ring != old.ring:
            # An unchanged ring in the file must not undo changes by `drlctl keys`.
            self.transport.set_ring(spec.ring)
        self._lives = {peer: it for peer, it in self._lives.items() if peer in spec.members}
        self._set_probes(now_ns, old.limits)
        for peer in fleet.peers:
            if self.probes is None or peer in self.departed:
                fleet.declare(peer, gone=peer in self.departed)

    def forget_departed(self, now_ns: int) -> bool:
        """Remove departed peers that no longer count in any limit; return whether any was."""
        kept = {peer: until_ns for peer, until_ns in self.departed.items() if until_ns >= now_ns}
        if kept == self.departed:
            return False
        self.departed = kept
        self.membership.set_peers({peer.name for peer in self.spec.peers} | kept.keys())
        return True

    def tick(self, now_ns: int) -> None:
        """Receive all messages that are pending, and send probes and answers."""
        # After a flood, queued updates may be arbitrarily old. Ignore them, as if they were lost;
        # all limiters then fall back towards their static shares. Until this limiter has joined,
        # some peers do not count it: to use their updates could exceed the limit.
        believed = self.spec.joined and self.transport.drained
        own = FABRICS[self.spec.gossip.fabric]
        refused = {
            fabric.kind: "fabric" if believed else "unheeded"
            for fabric in FABRICS.values()
            if fabric is not own or not believed
        }
        self.transport.receive(partial(self._take, now_ns), refused)
        if self.transport.drained:
            self.membership.drained(now_ns)
        self._probe(now_ns)

    def _take(self, now_ns: int, peer: str, kind: int, body: Any) -> None:
        """Pass a received message on to its owner."""
        handler = self.handlers.get(kind)
        if handler is None:
            self.transport.refuse("kind")
        else:
            handler(peer, body, now_ns)

    def _take_session(self, peer: str, met: Met, now_ns: int) -> None:
        """A peer has begun another incarnation: its sequence numbers count from 0."""
        limits = self.membership.on_session(peer, now_ns)
        self._lives[peer] = met.life
        if self.probes is not None:
            self.probes.meet(peer, met.life, now_ns)
        self._listener.on_session(peer, limits)

    def _take_control(self, peer: str, message: Control, now_ns: int) -> None:
        if self.probes is not None:
            self.probes.receive(peer, message, now_ns)

    def _probe(self, now_ns: int) -> None:
        """Send probes and answers, and report changed verdicts to the membership."""
        probes = self.probes
        if probes is None:
            return
        for peer, message in probes.tick(now_ns, self._rng):
            self.transport.send(peer, message.kind, message)
        for peer in probes.peer_states.changed:
            self.membership.declare(
                peer, probes.peer_states.state(peer) in (State.DEAD, State.LEFT)
            )
        self.judged |= probes.peer_states.changed
        probes.peer_states.changed.clear()

    def round_begins(self, now_ns: int, early_ns: int) -> bool:
        """Whether a round is due at this tick, or is within `early_ns`; if so, it begins now."""
        due = now_ns + early_ns >= self.round_due_ns
        if due:
            interval_ns = self.spec.gossip.interval_ns
            self.round_due_ns = next_due_ns(self.round_due_ns, now_ns, interval_ns)
        return due

    def tell(self, speaking: Iterable[Publish], now_ns: int, *, due: bool) -> None:
        """Send what these limits publish: to the targets of a round that is due, with a heartbeat
        where no limit has an update; else to the neighbours, which the news is for."""
        if not self.spec.joined:
            return
        fleet = self.membership
        # Between rounds nothing is taken out of the queue of those that a round answers.
        found = fleet.targets(self._rng) if due else fleet.neighbours()
        targets = [peer for peer in found if peer not in self.departed]
        told: dict[str, list[Update]] = {peer: [] for peer in targets}
        for publish in speaking:
            for peer, update in publish(targets, now_ns):
                told[peer].append(update)
        kind = FABRICS[self.spec.gossip.fabric].kind
        for peer, updates in told.items():
            if due and not updates:
                updates.append(self.membership.heartbeat(peer, now_ns))
            for start in range(0, len(updates), MAX_UPDATES):
                self.transport.send(peer, kind, updates[start : start + MAX_UPDATES])

    def _set_probes(self, now_ns: int, before: Iterable[LimitSpec]) -> None:
        """Have the probes of the configuration; they keep the knowledge of those before.

        A policy that is the same object in the limits `before` keeps its hash in the digest.
        """
        spec = self.spec
        if spec.probes is None:
            self.probes = None
            return
        policies = [limit.policy for limit in spec.limits]
        intervals = [spec.gossip.interval_ns, *(policy.interval_ns for policy in policies)]
        peers = [peer.name for peer in spec.peers]
        times = ProbeTimes.of(spec.probes, len(spec.members), min(intervals), max(intervals))
        policies_before = {limit.id: limit.policy for limit in before}
        hashes = {} if self.probes is None else self.probes.config_digest.hashes
        stay = {
            policy.id: hashes[policy.id]
            for policy in policies
            if policy.id in hashes and policies_before.get(policy.id) is policy
        }
        new = (policy for policy in policies if policy.id not in stay)
        config_digest = ConfigDigest(shared_settings(new, spec.gossip), times.timeout_ns, stay)
        if self.probes is not None:
            self.probes.set_peers(peers, times, config_digest)
            return
        self.probes = Probes(spec.name, self.transport.life, peers, times, config_digest)
        for peer, life in self._lives.items():
            self.probes.meet(peer, life, now_ns)
