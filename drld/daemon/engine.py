"""All limits of one daemon, their datapath and their gossip socket: one synchronous object.

The engine moves values between the pure `Limiter`s and the shells. `drld.daemon.process` owns the
clock, the signals and the tasks, and decides when.

The engine reads gossip at the start of a tick, not when it arrives. Only ticks use updates, and a
wake-up for each datagram would cost more than the rest of an idle daemon.

A limit is awake while the engine has work for it. If no limiter of the fleet has demand, the limit
comes to rest (`Limiter.at_rest`): the engine does not read, tick, publish or program it. A packet,
an update or a change of the membership wakes it. So ten thousand limits cost as much as those in
use.

`drld.reload` decides which knowledge survives a reload, and which peers have departed.
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
from drld.limiter import Limiter, Tick, membership, share_of, static_share
from drld.managed_limit import ManagedLimit
from drld.model import HEARTBEAT, Update
from drld.police.datapath import Datapath
from drld.policy import Policy
from drld.shared_settings import shared_settings
from drld.spec import LimiterSpec

GOSSIP = "[gossip]"
"""Stands for the settings of the fabric where the name of a limit is expected."""


class Engine:
    """Ticks every limit on time."""

    def __init__(
        self, spec: LimiterSpec, datapath: Datapath, transport: Transport, rng: Random
    ) -> None:
        self.spec = spec
        self.datapath = datapath
        self.transport = transport
        self.limits: dict[int, ManagedLimit] = {}
        self._numbering = Numbering(partial(transport.refuse, "replayed"))
        self._peers_changed = False
        """Whether peers have come or gone since the last look."""
        self.use(membership(spec.name, spec.members, spec.gossip))
        self.unknown_limit: Counter[str] = Counter()
        """Number of updates of limits that are not configured here, by peer."""
        self._departed: dict[str, int] = {}
        """Peers that a reload removed, and the time until which the membership keeps them, ns."""
        self._lives: dict[str, int] = {}
        """Incarnation of each peer that has a session."""
        self.probes = self._prober(spec, None, 0)
        """None if the configuration turns probes off."""
        self.judged: set[str] = set()
        """Peers whose verdict has changed. The reader clears the set."""
        self._rng = rng
        self._awake: dict[int, ManagedLimit] = {}
        self._by_name: dict[str, ManagedLimit] = {}
        self._look_interval_ns = spec.gossip.interval_ns
        self._look_due_ns = 0
        """Time of the next look for limits that must wake up, ns."""
        self._looked_ns = 0
        """Time at which the last look was due, ns. Limits that wake up join its grid."""
        self._looks_ns = (0, 0)
        """Times of the look before the last, and of the last, ns."""
        self._round_due_ns = 0

    def use(self, membership: Membership) -> None:
        """Have this membership from now on; limits that are made before have another."""
        membership.numbering = self._numbering
        membership.on_change = self.on_peer_change
        self.membership = membership

    def on_peer_change(self) -> None:
        """Other peers are connected: the next look wakes all limits."""
        self._peers_changed = True

    def start(self, now_ns: int) -> None:
        """Attach the datapath; every limit enforces its static share.

        Raises:
            DatapathError: the host refuses; nothing is left behind.
        """
        self._attach(self.spec, len(self.membership.peers) + 1, now_ns)
        self._adopt(self._successors(self.spec, now_ns), now_ns)
        self._round_due_ns = now_ns + self.spec.gossip.interval_ns

    def stop(self) -> None:
        """Detach the datapath, say farewell to the peers, close the socket; safe to call twice."""
        self.datapath.detach()
        probes, self.probes = self.probes, None
        if probes is not None:
            for peer, message in probes.farewell(self._rng):
                self.transport.send(peer, message.kind, message)
        self.transport.close()

    def reconfigure(self, spec: LimiterSpec, now_ns: int, *, reattach: bool = True) -> None:
        """Take over a changed configuration; limits whose id stays keep what they know.

        The datapath is attached again, which may take the kernel datapath 0.1 s. Without
        `reattach` this happens only if limits or `[gossip]` change.

        Raises:
            ConfigError: a key changed that only a restart can change, or a peer's address is not
                one to send to from here; nothing is changed.
            DatapathError: the host refuses the new rules; nothing is changed.
        """
        reload.check(self.spec, spec)
        departed = reload.departed(self._departed, self.membership, spec, now_ns)
        peers = {peer.name for peer in spec.peers} | departed.keys()
        undo = self.transport.update_peers({peer.name: peer.address for peer in spec.peers})
        if reattach or (spec.limits, spec.gossip) != (self.spec.limits, self.spec.gossip):
            try:
                self._attach(spec, len(peers) + 1, now_ns)
            except BaseException:
                undo()
                raise
        fleet = self.membership
        if self.spec.gossip != spec.gossip:
            self.use(fleet := membership(spec.name, {spec.name, *peers}, spec.gossip))
        else:
            fleet.set_peers(peers)
            if self.spec.joined and not spec.joined:
                fleet.forget()
        limits = self._successors(spec, now_ns)
        for limit in spec.limits:
            limits[limit.id].limiter.reconfigure(limit.policy, departed)
        if spec.ring != self.spec.ring:
            # An unchanged ring in the file must not undo changes by `drlctl keys`.
            self.transport.set_ring(spec.ring)
        self._departed = departed
        staying = set(fleet.peers) - departed.keys()
        self._lives = {peer: life for peer, life in self._lives.items() if peer in staying}
        self.probes = self._prober(spec, self.probes, now_ns)
        for peer in fleet.peers:
            if self.probes is None or peer in departed:
                fleet.declare(peer, gone=peer in departed)
        self.spec = spec
        self._adopt(limits, now_ns)
        # The next look wakes all limits, quiescent ones too.
        self._peers_changed = True

    def _forget_departed(self, now_ns: int) -> None:
        """Remove departed peers that no longer count in any limit."""
        self._departed = {k: v for k, v in self._departed.items() if v >= now_ns}
        self.membership.set_peers({peer.name for peer in self.spec.peers} | self._departed.keys())
        for limit_id, managed in self.limits.items():
            managed.limiter.reconfigure(managed.limiter.policy, self._departed)
            self.datapath.set_share(limit_id, managed.limiter.initial())

    def next_due_ns(self) -> int:
        """Time at which the next tick is due, ns."""
        return min(
            self._look_due_ns,
            self._round_due_ns,
            *(managed.due_ns for managed in self._awake.values()),
        )

    def tick(self, now_ns: int, watched: Collection[str] = ()) -> list[tuple[str, Tick]]:
        """Tick every limit that is due and awake; return the ticks with the limits' names.

        Limits whose names are `watched` stay awake.
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
        """Pass a received message on to its owner."""
        if isinstance(body, Met):
            self._meet(peer, body.life, now_ns)
        elif isinstance(body, Control):
            if self.probes is not None:
                self.probes.receive(peer, body, now_ns)
        else:
            for update in body:
                self._take_update(peer, update, now_ns)

    def disagreements(self) -> dict[str, list[str]]:
        """Peers with another configuration, each with the names of the limits that differ.

        `GOSSIP` stands for the settings of the fabric. The list is empty until the differing
        limits are found.
        """
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

    def _meet(self, peer: str, life: int, now_ns: int) -> None:
        """A peer has begun another incarnation: its sequence numbers count from 0."""
        for limit_id in self.membership.on_session(peer, now_ns):
            if (managed := self.limits.get(limit_id)) is not None:
                managed.limiter.on_session(peer)
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
        """Wake the limits that had packets, or all if the membership has changed."""
        self._looked_ns = self._look_due_ns
        self._looks_ns = (self._looks_ns[1], now_ns)
        self._look_due_ns = _next(self._look_due_ns, now_ns, self._look_interval_ns)
        for limit_id in self.datapath.had_traffic():
            self._wake(self.limits[limit_id])
        if self._departed and now_ns > min(self._departed.values()):
            self._forget_departed(now_ns)
        fleet = self.membership
        alone = not fleet.connected(now_ns) and not fleet.unnamed
        changed, self._peers_changed = self._peers_changed, False
        if changed:
            for managed in self.limits.values():
                self._wake(managed)
        if changed or not (alone or fleet.steady(now_ns)):
            # While connections change, each look ticks all limits, however long their intervals
            # are: connections and the peers' demand decide what is safe to enforce.
            for managed in self._awake.values():
                managed.due_ns = min(managed.due_ns, self._looked_ns)

    def _wake(self, managed: ManagedLimit) -> None:
        limit_id = managed.limiter.policy.id
        if limit_id not in self._awake:
            self._awake[limit_id] = managed
            managed.pending = True
            # A quiescent limit may have been due long ago.
            managed.due_ns = max(managed.due_ns, self._looked_ns)
            # The packets that the last look found came after the look before it.
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
        """Send updates to the round's targets, at the tick nearest to the time of the round.

        Between rounds, only limits with pressing news send updates.
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
        """Replace all limits by these."""
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
        """The probes of a configuration; they keep the knowledge of the old ones."""
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

    def _attach(self, spec: LimiterSpec, members: int, now_ns: int) -> None:
        """Attach the datapath with these limits: the records of the last ticks of those that are
        kept, and the static shares of the others, in a fleet of so many members."""
        pairs = []
        for limit in spec.limits:
            part = share_of(limit.policy.shares, spec.name, members)
            last = static_share(limit.policy, part)
            if (managed := self._kept(limit.policy, spec)) is not None:
                last = managed.last.enforcement if managed.last else managed.limiter.initial()
            # The datapath expects a heartbeat of the daemon in this interval: at every look.
            interval_ns = min(limit.policy.interval_ns, spec.gossip.interval_ns)
            policy = replace(limit.policy, interval_ns=interval_ns)
            pairs.append((replace(limit, policy=policy), last))
        self.datapath.attach(pairs, now_ns)

    def _kept(self, policy: Policy, spec: LimiterSpec) -> ManagedLimit | None:
        """The running limit, if its knowledge still applies after a reload."""
        managed = self.limits.get(policy.id)
        stays = (
            managed is not None
            and self.spec.gossip == spec.gossip
            and reload.knowledge_stays(managed.limiter.policy, policy)
        )
        return managed if stays else None

    def _successors(self, spec: LimiterSpec, now_ns: int) -> dict[int, ManagedLimit]:
        """The limits after a reload, by their ids."""
        limits = {}
        for policy in [limit.policy for limit in spec.limits]:
            managed = self._kept(policy, spec)
            if managed is None:
                limiter = Limiter(policy, self.membership, spec.gossip.fabric)
                due_ns = now_ns + policy.interval_ns
                former = self.limits.get(policy.id)
                if former is None:
                    managed = ManagedLimit(limiter, due_ns)
                else:
                    managed = replace(former, limiter=limiter, due_ns=due_ns, last=None)
            limits[policy.id] = managed
        return limits


def _next(due_ns: int, now_ns: int, interval_ns: int) -> int:
    """The next due time, ns. After a stall a new grid begins, so that no two ticks crowd."""
    late = now_ns - due_ns >= interval_ns
    return now_ns + interval_ns if late else due_ns + interval_ns
