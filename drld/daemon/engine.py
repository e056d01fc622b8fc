"""All limits of one daemon, their datapath and their gossip socket: one synchronous object.

The engine moves values between the pure `Limiter`s and the shells; when to do it is decided by
`drld.daemon.process`, which owns the clock, the signals and the tasks.

Gossip is read at the start of a tick and not when it arrives: updates are only used at ticks, and
a wake-up for each datagram would cost more than all the rest of an idle daemon.

A limit is awake while there is something to do for it. Where nobody in the fleet wants anything it
comes to rest (`Limiter.at_rest`): it is not read, ticked, gossiped or programmed until the datapath
has seen a packet of it, an update of it comes, or the membership changes. So ten thousand limits
cost what those cost that are in use.

What a reload takes over, and who has departed since, is `drld.reload`'s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from random import Random

from drld import reload
from drld.gossip.fabrics.membership import Membership
from drld.gossip.health.config_digest import GOSSIP_ID, ConfigDigest
from drld.gossip.health.probe_times import ProbeTimes
from drld.gossip.health.probes import Probes
from drld.gossip.transport import Transport
from drld.gossip.wire.control_codec import Control, State
from drld.gossip.wire.sequence import Acceptance
from drld.gossip.wire.session import Met
from drld.limiter import Limiter, Tick, membership
from drld.managed_limit import ManagedLimit
from drld.model import HEARTBEAT, Update
from drld.police.datapath import Datapath
from drld.shared_settings import shared_settings
from drld.spec import LimiterSpec, LimitSpec

GOSSIP = "[gossip]"
"""In the place of a limit's name: the settings of the fabric."""


class Engine:
    """Ticks every limit on time."""

    def __init__(
        self, spec: LimiterSpec, datapath: Datapath, transport: Transport, rng: Random
    ) -> None:
        self.spec = spec
        self.datapath = datapath
        self.transport = transport
        self.limits: dict[int, ManagedLimit] = {}
        self.membership = membership(spec.name, spec.members, spec.gossip)
        transport.set_fabric(spec.gossip.fabric)
        self.unknown_limit: Counter[str] = Counter()
        """Updates of a limit that is not configured here, by peer."""
        self._departed: dict[str, int] = {}
        """Peers that are configured no more, and until when they are in the membership."""
        self._lives: dict[str, int] = {}
        """Of the peers that were met."""
        self.probes = self._prober(spec, None, 0)
        """None: nobody is probed."""
        self.judged: set[str] = set()
        """Peers of which probes have found something else; whoever has looked clears it."""
        self._rng = rng
        self._awake: dict[int, ManagedLimit] = {}
        self._by_name: dict[str, ManagedLimit] = {}
        self._look_interval_ns = spec.gossip.interval_ns
        self._look_due_ns = 0
        """When to look for limits that must wake up."""
        self._looked_ns = 0
        """When the last look was due: those that wake up join its grid."""
        self._looks_ns = (0, 0)
        """When the one before the last look was, and the last."""
        self._round_due_ns = 0
        self._seen = self.membership.version

    def start(self, now_ns: int) -> None:
        """Attach the datapath; every limit enforces its static share.

        Raises:
            DatapathError: the host refuses; nothing is left behind.
        """
        limits = {
            limit.id: self._successor(limit, self.spec, self.membership, now_ns)
            for limit in self.spec.limits
        }
        self._attach(self.spec, limits, now_ns)
        self._adopt(limits, now_ns)
        self._round_due_ns = now_ns + self.spec.gossip.interval_ns

    def stop(self) -> None:
        """Detach the datapath, tell the others, close the socket; safe to call twice."""
        self.datapath.detach()
        probes, self.probes = self.probes, None
        if probes is not None:
            for peer, message in probes.farewell(self._rng):
                self.transport.send_control(peer, message)
        self.transport.close()

    def reconfigure(self, spec: LimiterSpec, now_ns: int, *, reattach: bool = True) -> None:
        """Take over a changed configuration; limits whose id stays keep what they know.

        The datapath is attached anew, which may take the kernel's 0.1 s; without `reattach` only
        if that is what changes.

        Raises:
            ConfigError: a key changed that only a restart can change, or a peer's address is not
                one to send to from here; nothing is changed.
            DatapathError: the host refuses the new rules; nothing is changed.
        """
        reload.check(self.spec, spec)
        departed = reload.departed(self._departed, self.membership, spec, now_ns)
        fleet = reload.fleet(self.spec, spec, self.membership, departed.keys())
        limits = {limit.id: self._successor(limit, spec, fleet, now_ns) for limit in spec.limits}
        undo = self.transport.update_peers({peer.name: peer.address for peer in spec.peers})
        if reattach or (spec.limits, spec.gossip) != (self.spec.limits, self.spec.gossip):
            try:
                self._attach(spec, limits, now_ns)
            except BaseException:
                undo()
                raise
        for limit in spec.limits:
            limits[limit.id].limiter.reconfigure(limit, fleet, departed)
        self.transport.set_fabric(spec.gossip.fabric)
        if spec.ring != self.spec.ring:
            # Else the keys stay that were changed since the file was read (`drlctl keys`).
            self.transport.set_ring(spec.ring)
        fleet.numbering.retain(fleet.peers)
        self._departed = departed
        staying = set(fleet.peers) - departed.keys()
        self._lives = {peer: life for peer, life in self._lives.items() if peer in staying}
        self.probes = self._prober(spec, self.probes, now_ns)
        for peer in fleet.peers:
            if self.probes is None or peer in departed:
                fleet.declare(peer, gone=peer in departed)
        self.spec = spec
        self.membership = fleet
        self._adopt(limits, now_ns)
        # Whatever has changed is taken in by the next look, by limits at rest as well.
        self._seen = -1

    def _forget_departed(self, now_ns: int) -> None:
        """Go on without those of whom nothing counts any more."""
        self._departed = {k: v for k, v in self._departed.items() if v >= now_ns}
        peers = {peer.name for peer in self.spec.peers} | self._departed.keys()
        fleet = reload.with_peers(self.membership, peers)
        for limit_id, managed in self.limits.items():
            managed.limiter.reconfigure(managed.limiter.limit, fleet, self._departed)
            self.datapath.set_share(limit_id, managed.limiter.initial())
        fleet.numbering.retain(fleet.peers)
        self.membership = fleet

    def next_due_ns(self) -> int:
        """When the next tick is due."""
        return min(
            self._look_due_ns,
            self._round_due_ns,
            *(managed.due_ns for managed in self._awake.values()),
        )

    def tick(self, now_ns: int, watched: Collection[str] = ()) -> list[tuple[str, Tick]]:
        """Tick every limit that is due and awake; each with its name.

        Those whose names are `watched` are not left to rest.
        """
        if now_ns >= self._look_due_ns:
            self._look(now_ns)
        self._receive(now_ns)
        self._probe(now_ns)
        for name in watched:
            if (managed := self._by_name.get(name)) is not None:
                self._wake(managed)
        ticks = [
            (managed.limiter.limit.name, self._tick(managed, now_ns))
            for managed in self._awake.values()
            if managed.due_ns <= now_ns
        ]
        self._gossip(now_ns)
        resting = [
            limit_id
            for limit_id, managed in self._awake.items()
            if managed.limiter.at_rest and not managed.pending
        ]
        for limit_id in resting:
            del self._awake[limit_id]
        self.datapath.flush(now_ns)
        return ticks

    def _receive(self, now_ns: int) -> None:
        # What a flood has kept waiting is of nobody knows when. As if it had been lost, all shrink.
        # Not joined: who counts on peers that do not all count on it takes more than there is.
        believed = self.spec.joined and self.transport.drained
        for peer, message in self.transport.receive(updates=believed):
            if isinstance(message, Met):
                self._meet(peer, message.life, now_ns)
            elif isinstance(message, Control):
                if self.probes is not None:
                    self.probes.receive(peer, message, now_ns)
            else:
                self._take_update(peer, message, now_ns)
        if self.transport.drained:
            self.membership.drained(now_ns)

    def disagreements(self) -> dict[str, list[str]]:
        """Peers that are configured otherwise, and in what, as far as found: names of limits, and
        `GOSSIP`."""
        if self.probes is None:
            return {}
        return {
            peer: [self._name_of(limit_id) for limit_id in ids]
            for peer, ids in self.probes.config_digest.disagreements().items()
        }

    def _name_of(self, limit_id: int) -> str:
        if limit_id == GOSSIP_ID:
            return GOSSIP
        managed = self.limits.get(limit_id)
        return f"{limit_id} (not here)" if managed is None else managed.limiter.limit.name

    def _probe(self, now_ns: int) -> None:
        """Probe, answer, and have the membership know what came of it."""
        probes = self.probes
        if probes is None:
            return
        for peer, message in probes.tick(now_ns, self._rng):
            self.transport.send_control(peer, message)
        for peer in probes.peer_states.changed:
            self.membership.declare(
                peer, probes.peer_states.state(peer) in (State.DEAD, State.LEFT)
            )
        self.judged |= probes.peer_states.changed
        probes.peer_states.changed.clear()

    def _meet(self, peer: str, life: int, now_ns: int) -> None:
        """A peer has begun another life: what it says counts from 0.

        The limits learn of it when they are used next.
        """
        self.membership.meet(peer, now_ns)
        self._lives[peer] = life
        if self.probes is not None:
            self.probes.meet(peer, life, now_ns)

    def _take_update(self, peer: str, update: Update, now_ns: int) -> None:
        if self.probes is not None:
            self.probes.gossip_came(peer)
        sequence = self.membership.numbering.peer_sequence(peer)
        replayed = sequence.replayed
        self._judge_update(peer, update, now_ns)
        if sequence.replayed != replayed:
            self.transport.refuse("replayed")

    def _judge_update(self, peer: str, update: Update, now_ns: int) -> None:
        if update.limit_id == HEARTBEAT:
            self.membership.receive(peer, update, now_ns)
            return
        managed = self.limits.get(update.limit_id)
        if managed is None:
            self.unknown_limit[peer] += 1
            numbers = self.membership.numbering.of(peer, update.limit_id)
            if isinstance(numbers.accept(update.sequence), Acceptance):
                self.membership.take(peer, update, now_ns)
        else:
            managed.limiter.receive(peer, update, now_ns)
            self._wake(managed)

    def _look(self, now_ns: int) -> None:
        """Wake the limits where something has happened."""
        self._looked_ns = self._look_due_ns
        self._looks_ns = (self._looks_ns[1], now_ns)
        self._look_due_ns = _next(self._look_due_ns, now_ns, self._look_interval_ns)
        for limit_id in self.datapath.had_traffic():
            self._wake(self.limits[limit_id])
        if self._departed and now_ns > min(self._departed.values()):
            self._forget_departed(now_ns)
        fleet = self.membership
        alone = not fleet.connected(now_ns) and not fleet.unnamed
        changed = fleet.version != self._seen
        if changed:
            self._seen = fleet.version
            for managed in self.limits.values():
                self._wake(managed)
        if changed or not (alone or fleet.steady(now_ns)):
            # However long their intervals are: who is connected, and what others want while that
            # changes, decides what is safe to enforce.
            for managed in self._awake.values():
                managed.due_ns = min(managed.due_ns, self._looked_ns)

    def _wake(self, managed: ManagedLimit) -> None:
        limit_id = managed.limiter.limit.id
        if limit_id not in self._awake:
            self._awake[limit_id] = managed
            managed.pending = True
            # It may have been due long ago.
            managed.due_ns = max(managed.due_ns, self._looked_ns)
            # What the last look found came after the one before.
            managed.silent_until_ns = self._looks_ns[0]

    def _tick(self, managed: ManagedLimit, now_ns: int) -> Tick:
        limiter = managed.limiter
        managed.pending = False
        managed.due_ns = _next(managed.due_ns, now_ns, limiter.limit.interval_ns)
        limit_id = limiter.limit.id
        measured = self.datapath.read(limit_id, now_ns)
        if measured.interval_ns > now_ns - managed.silent_until_ns:
            measured = replace(measured, interval_ns=now_ns - managed.silent_until_ns)
        tick = limiter.tick(measured, now_ns)
        self.datapath.program(limit_id, tick.enforcement, tick.evict, now_ns)
        managed.last = tick
        managed.totals.add(measured)
        return tick

    def _gossip(self, now_ns: int) -> None:
        """Tell the round's targets, at the tick that is nearest to when the round is due.

        At a tick in between only limits speak that have something pressing to say.
        """
        due = now_ns + self._look_interval_ns // 2 >= self._round_due_ns
        speaking = [
            managed for managed in self._awake.values() if due or managed.limiter.pressing(now_ns)
        ]
        if due:
            self._round_due_ns = _next(self._round_due_ns, now_ns, self.spec.gossip.interval_ns)
        elif not speaking:
            return
        if not self.spec.joined:
            return
        targets = [
            peer for peer in self.membership.targets(self._rng) if peer not in self._departed
        ]
        told: dict[str, list[Update]] = {peer: [] for peer in targets}
        for managed in speaking:
            for peer, update in managed.limiter.publish(targets, now_ns):
                told[peer].append(update)
        for peer, updates in told.items():
            if updates:
                self.transport.send(peer, updates)
            elif due:
                self.transport.send(peer, [self.membership.heartbeat(peer, now_ns)])

    def _adopt(self, limits: dict[int, ManagedLimit], now_ns: int) -> None:
        """These are the limits from now on."""
        self.limits = limits
        self._by_name = {managed.limiter.limit.name: managed for managed in limits.values()}
        self._awake = dict(limits)
        intervals = [managed.limiter.limit.interval_ns for managed in limits.values()]
        self._look_interval_ns = min([self.spec.gossip.interval_ns, *intervals])
        self._looked_ns = now_ns
        self._look_due_ns = now_ns + self._look_interval_ns
        for limit_id, managed in limits.items():
            self.datapath.set_share(limit_id, managed.limiter.initial())

    def _prober(self, spec: LimiterSpec, old: Probes | None, now_ns: int) -> Probes | None:
        """The probes of a configuration; they go on with what the old ones know."""
        if spec.probes is None:
            return None
        intervals = [spec.gossip.interval_ns, *(limit.interval_ns for limit in spec.limits)]
        peers = [peer.name for peer in spec.peers]
        times = ProbeTimes.of(spec.probes, len(spec.members), min(intervals), max(intervals))
        config_digest = ConfigDigest(shared_settings(spec.limits, spec.gossip), times.timeout_ns)
        if old is not None:
            old.set_peers(peers, times, config_digest)
            return old
        probes = Probes(spec.name, self.transport.life, peers, times, config_digest)
        for peer, life in self._lives.items():
            probes.meet(peer, life, now_ns)
        return probes

    def _attach(self, spec: LimiterSpec, limits: dict[int, ManagedLimit], now_ns: int) -> None:
        """Have the datapath enforce these limits, each as its last tick said."""
        pairs = []
        for limit in spec.limits:
            managed = limits[limit.id]
            last = managed.last.enforcement if managed.last else managed.limiter.initial()
            # To a datapath it is how often a daemon that lives shows it: in every look.
            interval_ns = min(limit.interval_ns, spec.gossip.interval_ns)
            pairs.append((replace(limit, interval_ns=interval_ns), last))
        self.datapath.attach(pairs, now_ns)

    def _successor(
        self, limit: LimitSpec, spec: LimiterSpec, fleet: Membership, now_ns: int
    ) -> ManagedLimit:
        """What is kept of a limit after a reload: the running one if its knowledge still fits."""
        managed = self.limits.get(limit.id)
        if (
            managed is not None
            and self.spec.gossip == spec.gossip
            and reload.knowledge_stays(managed.limiter.limit, limit)
        ):
            return managed
        limiter = Limiter(limit, fleet, spec.gossip.fabric)
        due_ns = now_ns + limit.interval_ns
        if managed is None:
            return ManagedLimit(limiter, due_ns)
        return replace(managed, limiter=limiter, due_ns=due_ns, last=None)


def _next(due_ns: int, now_ns: int, interval_ns: int) -> int:
    """Keep the grid while on time; after a stall begin a new one, as no two may crowd."""
    late = now_ns - due_ns >= interval_ns
    return now_ns + interval_ns if late else due_ns + interval_ns
