"""All limits of one daemon, of all planes: one synchronous object.

The engine moves values between the pure `Limiter`s, the node (`drld.node`) and the datapaths of the
planes (`drld.planes.plane`). `drld.daemon` owns the clock, the signals and the tasks, and decides
when.

A limit is awake while the engine has work for it. If no limiter of the fleet has demand, the limit
is quiescent (`Limiter.quiescent`): the engine does not read, tick, publish or program it. A packet,
an update or a change of the membership wakes it. So ten thousand limits cost as much as those in
use. If more than `MOST_TICKED` are due, messages are received between their ticks.

`drld.reload` decides which knowledge of a limit survives a reload.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from heapq import nsmallest
from operator import attrgetter
from random import Random

from drld import reload
from drld.attachment import attach_all, plane_of, records_of
from drld.awake_limits import AwakeLimits
from drld.config_difference import GOSSIP, NOT_HERE, NOT_THERE
from drld.gossip.fabrics import FABRICS
from drld.gossip.fabrics.link import LinkStats
from drld.gossip.fabrics.membership import Membership
from drld.gossip.fabrics.relays import Relays
from drld.gossip.health.config_digest import GOSSIP_ID
from drld.gossip.wire.counts_codec import Counts
from drld.gossip.wire.messenger import Messenger
from drld.limit_values import changed_limits
from drld.limiter import Limiter, Tick
from drld.managed_limit import ManagedLimit
from drld.model import HEARTBEAT, Update
from drld.node import Node, Publish, next_due_ns
from drld.planes.plane import Plane
from drld.spec import LimiterSpec

MOST_TICKED = 512
"""The most limits that one tick of the engine goes through: some 30 to 70 ms. A change of the peers
wakes all limits, and ten thousand take more than a second. A limiter that did not read its sockets
meanwhile would take its peers for silent, and this would be the next change."""


class Engine:
    """Ticks every limit on time."""

    def __init__(
        self, spec: LimiterSpec, planes: Sequence[Plane], transport: Messenger, rng: Random
    ) -> None:
        self.limits: dict[int, ManagedLimit] = {}
        self.unknown_limit: Counter[str] = Counter()
        """The number of updates of limits that are not configured here, by peer."""
        self.former_links: dict[str, LinkStats] = {}
        """Statistics of links that reloads have dropped, by peer."""
        self._planes = planes
        self._started = False
        self._peers_changed = False
        """Whether the set of connected peers has changed since the last look."""
        self.node = Node(spec, transport, rng, self)
        self.relays = Relays(FABRICS[spec.gossip.fabric], self.membership)
        """The limits that are not configured here."""
        kinds = (fabric.kind for fabric in FABRICS.values())
        self.node.handlers |= dict.fromkeys(kinds, self._take_updates)
        for plane in planes:
            self.node.handlers |= plane.handlers
        self._awake = AwakeLimits()
        self._by_name: dict[str, ManagedLimit] = {}
        self._look_interval_ns = spec.gossip.interval_ns
        self._look_due_ns = 0
        """The time of the next look for limits that must wake up, ns."""
        self._looked_ns = 0
        """Time at which the last look was due, ns. A limit that wakes up is due then at the
        earliest, so its ticks coincide with looks."""
        self._looks_ns = (0, 0)
        """The times of the look before the last one, and of the last one, ns."""

    @property
    def spec(self) -> LimiterSpec:
        """The configuration in force."""
        return self.node.spec

    @property
    def membership(self) -> Membership:
        """The peers of all limits."""
        return self.node.membership

    def start(self, now_ns: int) -> None:
        """Attach the datapaths; every limit enforces its static share.

        Raises:
            DatapathError: the host refuses; nothing is left behind.
        """
        self._attach(self.spec, {}, len(self.membership.peers) + 1, now_ns)
        self._started = True
        self._adopt({}, now_ns)
        self._tell_planes(self.limits)
        self.node.round_due_ns = now_ns + self.spec.gossip.interval_ns

    def stop(self) -> None:
        """Detach the datapaths, then leave the fleet; safe to call twice."""
        for plane in self._planes:
            plane.datapath.detach()
        self.node.stop()

    def reconfigure(self, spec: LimiterSpec, now_ns: int, *, reattach: bool = True) -> None:
        """Take over a changed configuration; limits whose id stays keep what they know.

        If the fleet stays, this costs limits that stay almost nothing: quiescent ones sleep on.

        The datapaths are attached again, which may take the kernel datapath 0.1 s. Without
        `reattach` this happens only if limits or `[gossip]` change.

        Raises:
            ConfigError: a key changed that only a restart can change, or a peer's address is not
                one to send to from here; nothing is changed.
            DatapathError: the host refuses the new rules; nothing is changed.
        """
        old = self.spec
        reload.check(old, spec)
        kept = self._kept(spec)
        addresses = {peer.name: peer.address for peer in spec.peers}
        with ExitStack() as undo:
            undo.callback(self.node.transport.update_peers(addresses))
            if reattach or (spec.limits, spec.gossip) != (old.limits, old.gossip):
                self._attach(spec, kept, len(self.node.members_after(spec)), now_ns)
            undo.pop_all()
        self._count_former_links(kept, fabric_stays=spec.gossip == old.gossip)
        self.node.reconfigure(spec, now_ns)
        for peer in self.unknown_limit.keys() - addresses.keys():
            del self.unknown_limit[peer]
        for peer in self.former_links.keys() - addresses.keys():
            del self.former_links[peer]
        self._adopt(kept, now_ns)
        same = reload.same_fleet(old, spec)
        changed = {it.limit.id for it in changed_limits(old.limits, spec.limits)}
        self._set_peers(changed & self.limits.keys() if same else self.limits)
        if not same:
            # The next look wakes all limits, quiescent ones too.
            self._peers_changed = True

    def on_session(self, peer: str, limits: Collection[int]) -> None:
        """See `drld.node.Listener`."""
        for limit_id in limits:
            if (managed := self.limits.get(limit_id)) is not None:
                managed.limiter.on_session(peer)
        for plane in self._planes:
            plane.on_session(peer)

    def on_peer_change(self) -> None:
        """See `drld.node.Listener`: the next look wakes all limits."""
        self._peers_changed = True
        for plane in self._planes:
            plane.on_peer_change()

    def next_due_ns(self) -> int:
        """Return the time at which the next tick is due, ns."""
        return min(
            self._look_due_ns,
            self.node.round_due_ns,
            *(managed.due_ns for managed in self._awake.prompt.values()),
        )

    def limit_id(self, name: str) -> int:
        """Return the id of the limit of this name.

        Raises:
            KeyError: there is none.
        """
        return self._by_name[name].limiter.policy.id

    def tick(self, now_ns: int, watched: Collection[str] = ()) -> list[tuple[str, Tick]]:
        """Tick the limits that are due and awake; return the ticks with the limits' names.

        Of many limits, those that have been due longest are ticked; the others are still due then.
        Limits whose names are `watched` stay awake.
        """
        looks, awake = now_ns >= self._look_due_ns, self._awake
        if looks:
            self._look(now_ns)
        self.node.tick(now_ns)
        for name in watched:
            if (managed := self._by_name.get(name)) is not None:
                self._wake(managed)
                awake.hurry(managed.limiter.policy.id)
        turn = awake.take_turn() if looks else ()
        due = [it for it in (*awake.prompt.values(), *turn) if it.due_ns <= now_ns]
        if len(due) > MOST_TICKED:
            due = nsmallest(MOST_TICKED, due, attrgetter("due_ns"))
        ticks = [(it.limiter.policy.name, self._tick(it, now_ns)) for it in due]
        self._gossip(turn, now_ns)
        awake.sort(turn)
        for plane in self._planes:
            for peer, kind, body in plane.tick(now_ns):
                self.node.transport.send(peer, kind, body)
        return ticks

    def counted(self, limit_id: int, now_ns: int) -> Counts | None:
        """Return the totals of a limit; None: there is no such limit. A quiescent limit has the
        totals of now, as nothing came since its last tick. From now on another limit is ticked when
        it is due, so the next call finds recent totals."""
        managed = self.limits.get(limit_id)
        if managed is None:
            return None
        quiescent = managed.limiter.quiescent and not managed.pending
        if not quiescent:
            self._awake.hurry(limit_id)
        totals = managed.totals
        counted_ns = now_ns if quiescent else managed.ticked_ns
        return Counts(limit_id, False, counted_ns, totals.forwarded_tokens, totals.dropped_tokens)

    def disagreements(self) -> dict[str, list[str]]:
        """Return the peers with another configuration, each with the names of the limits that
        differ.

        `GOSSIP` stands for the settings of the fabric. A mark follows a limit that one of both
        lacks. The list is empty until the differing limits are found.
        """
        probes = self.node.probes
        found = {} if probes is None else probes.config_digest.disagreements()
        return {
            peer: [self._name_of(limit_id, there) for limit_id, there in ids.items()]
            for peer, ids in found.items()
        }

    def _name_of(self, limit_id: int, there: bool) -> str:
        if (managed := self.limits.get(limit_id)) is not None:
            return managed.limiter.policy.name + ("" if there else NOT_THERE)
        return GOSSIP if limit_id == GOSSIP_ID else f"{limit_id}{NOT_HERE}"

    def _take_updates(self, peer: str, updates: Sequence[Update], now_ns: int) -> None:
        """Pass the updates of a message on to their limits."""
        probes, fleet, asleep = self.node.probes, self.membership, self._awake.asleep
        if probes is not None:
            probes.gossip_came(peer)
        for update in updates:
            if update.limit_id == HEARTBEAT:
                fleet.receive(peer, update, now_ns)
            elif (managed := self.limits.get(update.limit_id)) is not None:
                managed.limiter.receive(peer, update, now_ns)
                if update.limit_id in asleep:
                    self._wake(managed)
            else:
                self.unknown_limit[peer] += 1
                self.relays.receive(peer, update, now_ns)

    def _look(self, now_ns: int) -> None:
        """Wake the limits that had traffic, or all if the membership has changed."""
        self._looked_ns = self._look_due_ns
        self._looks_ns = (self._looks_ns[1], now_ns)
        self._look_due_ns = next_due_ns(self._look_due_ns, now_ns, self._look_interval_ns)
        for plane in self._planes:
            for limit_id in plane.datapath.had_traffic(self._awake.asleep):
                self._wake(self.limits[limit_id])
        if self.node.forget_departed(now_ns):
            self._set_peers(self.limits)
        fleet = self.membership
        alone = not fleet.connected(now_ns) and not fleet.unnamed
        changed, self._peers_changed = self._peers_changed, False
        if changed:
            for managed in self.limits.values():
                self._wake(managed)
                managed.pending = True
                if not managed.limiter.only_measures:
                    self._awake.hurry(managed.limiter.policy.id)
        if changed or not (alone or fleet.steady(now_ns)):
            # While connections change, each look ticks all limits, however long their intervals
            # are: connections and the peers' demand decide what is safe to enforce.
            for managed in self._awake.prompt.values():
                managed.due_ns = min(managed.due_ns, self._looked_ns)

    def _wake(self, managed: ManagedLimit) -> None:
        if self._awake.add(managed):
            managed.pending = True
            # A quiescent limit may have been due long ago.
            managed.due_ns = max(managed.due_ns, self._looked_ns)
            # The packets that the last look found came after the look before it.
            managed.silent_until_ns = self._looks_ns[0]

    def _tick(self, managed: ManagedLimit, now_ns: int) -> Tick:
        limiter, datapath = managed.limiter, managed.datapath
        managed.pending = False
        managed.due_ns = next_due_ns(managed.due_ns, now_ns, limiter.policy.interval_ns)
        limit_id = limiter.policy.id
        measured = datapath.read(limit_id, now_ns)
        if measured.interval_ns > now_ns - managed.silent_until_ns:
            measured = replace(measured, interval_ns=now_ns - managed.silent_until_ns)
        tick = limiter.tick(measured, now_ns)
        datapath.program(limit_id, tick.enforcement, tick.evict, now_ns)
        managed.last = tick
        managed.ticked_ns = now_ns
        managed.observe(measured, now_ns)
        return tick

    def _gossip(self, turn: Iterable[ManagedLimit], now_ns: int) -> None:
        """Send updates at the tick nearest to the time of the round.

        Of limits that only measure, those send updates whose turn it is. Between rounds, only
        limits with pressing news do.
        """
        due = self.node.round_begins(now_ns, self._look_interval_ns // 2)
        speaking: list[Publish] = [
            managed.limiter.publish
            for managed in (*self._awake.prompt.values(), *turn)
            if due or managed.limiter.pressing(now_ns)
        ]
        speaking += self.relays.speaking(now_ns, due=due)
        if due or speaking:
            self.node.tell(speaking, now_ns, due=due)

    def _attach(
        self, spec: LimiterSpec, kept: Mapping[int, ManagedLimit], members: int, now_ns: int
    ) -> None:
        """Attach all datapaths for a fleet of so many members, or leave all as they were."""
        before = partial(records_of, self._planes, self.spec, self.limits, members)
        records = records_of(self._planes, spec, kept, members)
        attach_all(records, before if self._started else None, now_ns)

    def _kept(self, spec: LimiterSpec) -> dict[int, ManagedLimit]:
        """Return the running limits whose knowledge still applies after a reload."""
        if self.spec.gossip != spec.gossip:
            return {}
        running = [(limit.policy, self.limits.get(limit.id)) for limit in spec.limits]
        return {
            policy.id: managed
            for policy, managed in running
            if managed is not None and reload.knowledge_stays(managed.limiter.policy, policy)
        }

    def _count_former_links(self, kept: Container[int], *, fabric_stays: bool) -> None:
        """Keep the statistics of links that a reload drops, so that counts of peers never fall."""
        found = [
            link
            for limit_id, managed in self.limits.items()
            if limit_id not in kept
            for fabric in managed.limiter.fabrics
            for link in fabric.links.items()
        ]
        if not fabric_stays:
            found += [(peer, self.membership.heartbeats(peer)) for peer in self.membership.peers]
        for peer, link in found:
            self.former_links[peer] = link.plus(self.former_links.get(peer, LinkStats()))

    def _adopt(self, kept: Mapping[int, ManagedLimit], now_ns: int) -> None:
        """Run the limits of the configuration from now on."""
        spec = self.spec
        limits = {}
        for limit in spec.limits:
            datapath = plane_of(limit, self._planes).datapath
            managed = kept.get(limit.id)
            if managed is None:
                limiter = Limiter(limit.policy, self.membership, spec.gossip.fabric)
                due_ns = now_ns + limit.policy.interval_ns
                managed = self.limits.get(limit.id) or ManagedLimit(limiter, datapath, due_ns)
                managed = replace(managed, limiter=limiter, due_ns=due_ns, last=None)
            if managed.target != limit.match:
                managed.target, managed.profile = limit.match, None
            managed.datapath = datapath
            limits[limit.id] = managed
        self.limits = limits
        if self.relays.membership is not self.membership:
            self.relays = Relays(FABRICS[spec.gossip.fabric], self.membership)
        self.relays.leave_out(limits)
        self._by_name = {limit.name: limits[limit.id] for limit in spec.limits}
        self._awake.have(limits, asleep=kept)
        intervals = [limit.policy.interval_ns for limit in spec.limits]
        self._look_interval_ns = min([spec.gossip.interval_ns, *intervals])
        self._looked_ns = now_ns
        self._look_due_ns = now_ns + self._look_interval_ns

    def _set_peers(self, limits: Collection[int]) -> None:
        """Make these limits take over their policies and the present peers.

        The next look ticks these limits.
        """
        for limit in self.spec.limits:
            if limit.id in limits:
                managed = self.limits[limit.id]
                managed.limiter.reconfigure(limit.policy, self.node.departed)
                self._wake(managed)
                self._awake.hurry(limit.id)
                managed.pending = True
                managed.due_ns = min(managed.due_ns, self._look_due_ns)
        self.relays.set_peers()
        self._tell_planes(limits)

    def _tell_planes(self, limits: Iterable[int]) -> None:
        """Tell the planes the peers, and the share of each of these limits among them."""
        for limit_id in limits:
            managed = self.limits[limit_id]
            managed.datapath.set_share(limit_id, managed.limiter.initial())
        for plane in self._planes:
            plane.set_peers(self.membership.peers)
