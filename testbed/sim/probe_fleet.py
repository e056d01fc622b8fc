"""A fleet that only probes, on the simulated network (`drld.gossip.health.probes`).

Each limiter ticks at a phase of its own. It may be frozen (it reads all messages when it goes on),
dead, or late. Handshakes cross the network as messages: a message to a life that was not met is
replaced by a greeting, and a message for another life is not read.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import NamedTuple

from drld.gossip.health.config_digest import ConfigDigest
from drld.gossip.health.probe_times import ProbeTimes
from drld.gossip.health.probes import Probes
from drld.gossip.wire.control_codec import Control, State
from drld.model import GRACE_INTERVALS, NS_PER_S
from drld.policy import Policy
from drld.shared_settings import shared_settings
from drld.spec import GossipSpec, ProbeSpec
from testbed.sim.network import MS, Conditions, Network

TICK_NS = 50 * MS


class Packet(NamedTuple):
    """A datagram with the lives of sender and receiver; a greeting has no message."""

    mine: int
    yours: int
    message: Control | None


class Host:
    """One limiter, over all its lives."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.frozen_until_ns = 0
        self.probes: Probes
        self.sessions: dict[str, int] = {}
        self.sent = 0
        """Number of control messages."""
        self.ticked_ns = 0
        """When the limiter last ran."""
        self.isolated = False
        """Whether it was isolated then."""


class Change(NamedTuple):
    """A changed verdict of one limiter about another."""

    now_ns: int
    observer: str
    peer: str
    state: State | None


class ProbeFleet:
    """Limiters l0, l1, ..."""

    def __init__(
        self,
        size: int,
        seed: int,
        conditions: Conditions | None = None,
        spec: ProbeSpec | None = None,
        *,
        limits: tuple[Policy, ...] = (),
    ) -> None:
        self.network: Network[Packet] = Network(seed, conditions or Conditions())
        self.names = [f"l{index}" for index in range(size)]
        self.times = ProbeTimes.of(spec or ProbeSpec(), size, TICK_NS, TICK_NS)
        self.limits = dict.fromkeys(self.names, limits)
        self.hosts = {name: Host(name) for name in self.names}
        self.now_ns = 0
        self.changes: list[Change] = []
        self.early: list[Change] = []
        """Verdicts of death on limiters that did not enforce their static share yet."""
        self._fallback_ns = GRACE_INTERVALS * TICK_NS
        self.late: dict[str, float] = {}
        """Probability, by limiter, that a tick is delayed by up to 3 s."""
        self.overloaded: dict[str, float] = {}
        """Probability, by limiter, that its socket loses a datagram."""
        self.rng = Random(seed)
        self._order = sorted((self.rng.randrange(TICK_NS), name) for name in self.names)
        for name in self.names:
            self.start(name)

    def start(self, name: str) -> None:
        """Begin another life of a limiter."""
        host = self.hosts[name]
        host.alive, host.frozen_until_ns = True, 0
        host.sessions = {}
        host.probes = Probes(
            name,
            self.rng.getrandbits(64) or 1,
            [peer for peer in self.names if peer != name],
            self.times,
            ConfigDigest(
                shared_settings(self.limits[name], GossipSpec("tree", 3, TICK_NS)),
                self.times.timeout_ns,
            ),
        )

    def kill(self, name: str) -> None:
        """Kill a limiter: it sends no farewell."""
        self.hosts[name].alive = False

    def leave(self, name: str) -> None:
        """Stop a limiter."""
        host = self.hosts[name]
        for peer, message in host.probes.farewell(self.rng):
            self._send(host, peer, message)
        host.alive = False

    def freeze(self, name: str, seconds: float) -> None:
        """Freeze a limiter."""
        self.hosts[name].frozen_until_ns = self.now_ns + round(seconds * NS_PER_S)

    def run(self, seconds: float) -> None:
        """Let the time pass."""
        end_ns = self.now_ns + round(seconds * NS_PER_S)
        while self.now_ns < end_ns:
            base_ns = self.now_ns
            for phase_ns, name in self._order:
                self.now_ns = base_ns + phase_ns
                self._tick(self.hosts[name])
            self.now_ns = base_ns + TICK_NS

    def run_until(self, done: Collection[str], peer: str, state: State, seconds: float) -> float:
        """Run until all of `done` have this verdict on a peer; return the time it took, s."""
        began_ns = self.now_ns
        while not all(self.state(name, peer) is state for name in done):
            if self.now_ns - began_ns > seconds * NS_PER_S:
                holding = {name: self.state(name, peer) for name in done}
                raise AssertionError(f"{peer} is not {state!r} after {seconds} s: {holding}")
            self.run(TICK_NS / NS_PER_S)
        return (self.now_ns - began_ns) / NS_PER_S

    def state(self, name: str, peer: str) -> State | None:
        """The verdict of one limiter on another."""
        return self.hosts[name].probes.peer_states.state(peer)

    def others(self, *names: str) -> list[str]:
        """All running limiters except these."""
        return [name for name in self.names if self.hosts[name].alive and name not in names]

    def _tick(self, host: Host) -> None:
        now_ns = self.now_ns
        if not host.alive:
            # Datagrams to a dead limiter are lost, and do not wait for its next life.
            for _ in self.network.receive(host.name, now_ns):
                pass
            return
        if now_ns < host.frozen_until_ns:
            return
        if (late := self.late.get(host.name)) and self.rng.random() < late:
            host.frozen_until_ns = now_ns + self.rng.randrange(3 * NS_PER_S)
            return
        probes = host.probes
        overflow = self.overloaded.get(host.name, 0.0)
        for peer, packet in self.network.receive(host.name, now_ns):
            if overflow and self.rng.random() < overflow:
                continue
            self._receive(host, peer, packet)
        outbox = probes.tick(now_ns, self.rng)
        # A limiter that has met no peer in this life counts on no peer.
        host.ticked_ns, host.isolated = now_ns, not host.sessions or probes.isolated(now_ns)
        for peer in sorted(probes.peer_states.changed):
            self._note(host, peer)
        probes.peer_states.changed.clear()
        for peer, message in outbox:
            self._send(host, peer, message)

    def _note(self, host: Host, peer: str) -> None:
        known = host.probes.peer_states.known(peer)
        change = Change(self.now_ns, host.name, peer, None if known is None else known.state)
        self.changes.append(change)
        other = self.hosts[peer]
        if known is None or (known.state, known.life) != (State.DEAD, other.probes.life):
            return
        if not other.isolated and self.now_ns - other.ticked_ns < self._fallback_ns:
            self.early.append(change)

    def _send(self, host: Host, peer: str, message: Control | None) -> None:
        life = host.sessions.get(peer, 0)
        if not life:
            message = None
        host.sent += message is not None
        self.network.send(host.name, peer, Packet(host.probes.life, life, message), self.now_ns)

    def _receive(self, host: Host, peer: str, packet: Packet) -> None:
        if host.sessions.get(peer) != packet.mine:
            host.sessions[peer] = packet.mine
            host.probes.meet(peer, packet.mine, self.now_ns)
        if packet.yours != host.probes.life:
            self._send_greeting(host, peer)
        elif packet.message is not None:
            host.probes.receive(peer, packet.message, self.now_ns)

    def _send_greeting(self, host: Host, peer: str) -> None:
        packet = Packet(host.probes.life, host.sessions[peer], None)
        self.network.send(host.name, peer, packet, self.now_ns)


def false_verdicts(fleet: ProbeFleet, state: State) -> int:
    """The number of times that a limiter came to this verdict on a running limiter."""
    return sum(change.state is state and fleet.hosts[change.peer].alive for change in fleet.changes)
