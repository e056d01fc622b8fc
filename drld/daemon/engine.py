"""All limits of one daemon, their datapath and their gossip socket: one synchronous object.

The engine moves values between the pure `Limiter`s and the shells. `drld.daemon.process` owns the
clock, the signals and the tasks, and decides when.

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
from functools import partial
from random import Random
from typing import Any

from drld import reload
from drld.gossip.fabrics import FABRICS
from drld.gossip.fabrics.membership import Membership
from drld.gossip.health.config_digest import GOSSIP_ID, ConfigDigest
from drld.gossip.health.probe_times import ProbeTimes
from drld.gossip.health.probes import Probes
from drld.gossip.transport import Transport
from drld.gossip.wire.control_codec import Control, State
from drld.gossip.wire.sequence import Acceptance, Numbering
from drld.gossip.wire.session import Met
from drld.gossip.wire.update_codec import MAX_UPDATES
from drld.limiter import Limiter, Tick, membership
from drld.managed_limit import ManagedLimit
from drld.model import HEARTBEAT, Update
from drld.police.datapath import Datapath
from drld.policy import Policy
from drld.shared_settings import shared_settings
from drld.spec import LimiterSpec

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
        # A reload hands the numbers on, to whatever membership there is then.
        self.membership.numbering = Numbering(partial(transport.refuse, "replayed"))
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
            limit.id: self._successor(limit.policy, self.spec, self.membership, now_ns)
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
                self.transport.send(peer, message.kind, message)
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
        limits = {
            limit.id: self._successor(limit.policy, spec, fleet, now_ns) for limit in spec.limits
        }
        undo = self.transport.update_peers({peer.name: peer.address for peer in spec.peers})
        if reattach or (spec.limits, spec.gossip) != (self.spec.limits, self.spec.gossip):
            try:
                self._attach(spec, limits, now_ns)
            except BaseException:
                undo()
                raise
        for limit in spec.limits:
            limits[limit.id].limiter.reconfigure(limit.policy, fleet, departed)
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
            managed.limiter.reconfigure(managed.limiter.policy, fleet, self._departed)
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
            (managed.limiter.policy.name, self._tick(managed, now_ns))
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

    def _take(self, now_ns: int, peer: str, _kind: int, body: Any) -> None:
        """Take in a message."""
        if isinstance(body, Met):
            self._meet(peer, body.life, now_ns)
        elif isinstance(body, Control):
            if self.probes is not None:
                self.probes.receive(peer, body, now_ns)
        else:
            for update in body:
                self._take_update(peer, update, now_ns)

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
        return f"{limit_id} (not here)" if managed is None else managed.limiter.policy.name

    def _probe(self, now_ns: int) -> None:
        """Probe, answer, and have the membership know what came of it."""
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
        limit_id = managed.limiter.policy.id
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
        managed.due_ns = _next(managed.due_ns, now_ns, limiter.policy.interval_ns)
        limit_id = limiter.policy.id
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
        kind = FABRICS[self.spec.gossip.fabric].kind
        for peer, updates in told.items():
            if due and not updates:
                updates.append(self.membership.heartbeat(peer, now_ns))
            for start in range(0, len(updates), MAX_UPDATES):
                self.transport.send(peer, kind, updates[start : start + MAX_UPDATES])

    def _adopt(self, limits: dict[int, ManagedLimit], now_ns: int) -> None:
        """These are the limits from now on."""
        self.limits = limits
        self._by_name = {managed.limiter.policy.name: managed for managed in limits.values()}
        self._awake = dict(limits)
        intervals = [managed.limiter.policy.interval_ns for managed in limits.values()]
        self._look_interval_ns = min([self.spec.gossip.interval_ns, *intervals])
        self._looked_ns = now_ns
        self._look_due_ns = now_ns + self._look_interval_ns
        for limit_id, managed in limits.items():
            self.datapath.set_share(limit_id, managed.limiter.initial())

    def _prober(self, spec: LimiterSpec, old: Probes | None, now_ns: int) -> Probes | None:
        """The probes of a configuration; they go on with what the old ones know."""
        if spec.probes is None:
            return None
        policies = [limit.policy for limit in spec.limits]
        intervals = [spec.gossip.interval_ns, *(policy.interval_ns for policy in policies)]
        peers = [peer.name for peer in spec.peers]
        times = ProbeTimes.of(spec.probes, len(spec.members), min(intervals), max(intervals))
        config_digest = ConfigDigest(shared_settings(policies, spec.gossip), times.timeout_ns)
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
            interval_ns = min(limit.policy.interval_ns, spec.gossip.interval_ns)
            policy = replace(limit.policy, interval_ns=interval_ns)
            pairs.append((replace(limit, policy=policy), last))
        self.datapath.attach(pairs, now_ns)

    def _successor(
        self, policy: Policy, spec: LimiterSpec, fleet: Membership, now_ns: int
    ) -> ManagedLimit:
        """What is kept of a limit after a reload: the running one if its knowledge still fits."""
        managed = self.limits.get(policy.id)
        if (
            managed is not None
            and self.spec.gossip == spec.gossip
            and reload.knowledge_stays(managed.limiter.policy, policy)
        ):
            return managed
        limiter = Limiter(policy, fleet, spec.gossip.fabric)
        due_ns = now_ns + policy.interval_ns
        if managed is None:
            return ManagedLimit(limiter, due_ns)
        return replace(managed, limiter=limiter, due_ns=due_ns, last=None)


def _next(due_ns: int, now_ns: int, interval_ns: int) -> int:
    """Keep the grid while on time; after a stall begin a new one, as no two may crowd."""
    late = now_ns - due_ns >= interval_ns
    return now_ns + interval_ns if late else due_ns + interval_ns
