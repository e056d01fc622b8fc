"""One limit on one limiter: estimator, fabric and allocator put together, without any I/O.

The daemon, the simulator and the tests all drive this class: feed it decoded updates with
`receive`, and once an estimate interval a `Measurement` with `tick`; do what the `Tick` says. Once
a gossip interval `publish` says what to tell the round's targets. All limits of a daemon share its
`Membership`. A limit that is `at_rest` needs neither until something happens to it.

The conservative rule (paper, section 5.6; docs/conservative-rule.md): for each limiter from which
no fresh updates come, the limit shrinks by that limiter's static share, and later its estimate
counts zero. The limit in force falls at once, and rises when more have been connected for
`Membership.rise_ns`: what they want must be known to all before anybody uses their shares. A
limiter that hears nobody, and has no estimate left that counts, enforces its static share as a
plain bucket, whatever the allocator.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from drld.allocators import ALLOCATORS
from drld.allocators.base import Allocation, InForce, bucket
from drld.estimate.demand import DemandEstimator
from drld.gossip.fabrics import FABRICS
from drld.gossip.fabrics.base import Fabric
from drld.gossip.fabrics.membership import Membership
from drld.gossip.fabrics.sliding_extreme import sliding_min
from drld.gossip.wire.update_codec import MAX_VALUE
from drld.model import Demand, Enforcement, FlowId, GlobalView, Measurement, Quantity, Update
from drld.policy import Policy
from drld.spec import GossipSpec


def membership(name: str, members: Collection[str], gossip: GossipSpec) -> Membership:
    """What one limiter of a fleet begins with; `members` are the names of all, its own included."""
    return FABRICS[gossip.fabric].make_membership(
        name, set(members) - {name}, gossip.branching, gossip.interval_ns
    )


@dataclass(frozen=True, slots=True)
class Tick:
    """What one estimate interval leads to."""

    enforcement: Enforcement
    evict: list[FlowId]
    """Flows to drop from the datapath's sample."""
    measurement: Measurement
    demand: Demand
    view: GlobalView
    in_force: InForce
    quantity: Quantity
    """What `allocation.value` and `view.remote` are."""
    allocation: Allocation


class Limiter:
    """One limit on one limiter."""

    def __init__(self, policy: Policy, membership: Membership, fabric: str) -> None:
        """`fabric` is the one that the membership was made for."""
        self.policy = policy
        self.membership = membership
        allocator = ALLOCATORS[policy.allocator]
        self._allocator = allocator(policy.parameters)
        self._demand = DemandEstimator(policy.ewma, policy.unit.item)
        self._value = 0.0
        """What to tell the fleet."""
        self._shares = policy.shares
        """Of the limit, by name; empty: all have the same."""
        self._reached: tuple[Collection[str], int, float] | None = None
        """The peers that were connected last, how many more, and the sum of all these shares."""
        self._shares_in_force = sliding_min(membership.rise_ns)
        """That sum, when it has lasted."""
        self._told = sliding_min(0)
        """The least value that any other may still believe."""
        self._published = False
        self._news_ns = 0
        self._session = membership.numbering.sessions
        """The newest one that the fabric knows of."""
        self._last_in_force: tuple[float, InForce] | None = None
        """Of which sum, and what."""
        self.fabric: Fabric[Any] = FABRICS[fabric](
            membership=membership,
            limit_id=policy.id,
            quantity=allocator.quantity,
            share=self._share,
        )
        self._remember()

    def _remember(self) -> None:
        """Remember what was told for as long as somebody may believe it."""
        # What others believe is used until their next tick.
        self._news_ns = self.fabric.news_ns + self.policy.interval_ns
        self._told = self._told.over(self._news_ns)

    def reconfigure(
        self, policy: Policy, membership: Membership, departed: Collection[str] = ()
    ) -> None:
        """Take over a changed policy (same id, allocator and EWMA) and fleet; knowledge stays.

        `departed` are peers of the membership that the limit does not know any more: until they are
        forgotten nobody's share becomes larger.
        """
        reached = self._reached
        shares = policy.shares
        if shares and departed:
            before = self._shares
            shares = {name: min(part, before.get(name, part)) for name, part in shares.items()}
            shares |= {name: before[name] for name in departed if name in before}
        self.policy = policy
        self.membership = membership
        self._shares = shares
        self._reached = self._last_in_force = None
        # The same limiters stay in force, with the shares that they have now.
        factor = 1.0
        if reached is not None:
            connected, unnamed, before_sum = reached
            factor = self._reachable(connected, unnamed) / before_sum if before_sum else 0.0
        self._shares_in_force = self._shares_in_force.over(membership.rise_ns, factor)
        self.fabric.reconfigure(membership)
        self._remember()

    def receive(self, peer: str, update: Update, now_ns: int) -> None:
        """Take in an update of this limit from a peer."""
        self._meet(now_ns)
        self.fabric.receive(peer, update, now_ns)

    def initial(self) -> Enforcement:
        """What to enforce until the first tick: the static share."""
        return self._static(self._shared(self._share(self.membership.name)))

    @property
    def at_rest(self) -> bool:
        """Whether a tick would change nothing, for as long as no packet and no update comes and
        the membership stays what it is."""
        idle = self._demand.idle and not self._value and self._told.settled
        settled = self._shares_in_force.settled and self._allocator.settled
        return idle and self.fabric.quiet and settled

    def tick(self, measurement: Measurement, now_ns: int) -> Tick:
        """End an estimate interval.

        Raises:
            ValueError: the measurement's interval is not positive.
        """
        demand, evict = self._demand.update(measurement)
        self._meet(now_ns)
        view = replace(
            self.fabric.view(now_ns),
            told=self._told.latest(now_ns),
            news_ns=self._news_ns,
        )
        in_force = self._in_force(view, now_ns)
        allocation = self._allocator.allocate(demand, view, in_force, measurement.interval_ns)
        # Figure 2's line 9 has no upper bound.
        self._value = min(allocation.value, MAX_VALUE)
        alone = bool(self.membership.peers) and not view.connected and not view.remote
        return Tick(
            enforcement=self._static(in_force) if alone else allocation.enforcement,
            evict=evict,
            measurement=measurement,
            demand=demand,
            view=view,
            in_force=in_force,
            quantity=self.fabric.quantity,
            allocation=allocation,
        )

    def pressing(self, now_ns: int) -> bool:
        """Whether `publish` cannot wait for the end of the gossip interval."""
        self._meet(now_ns)
        return self.fabric.pressing(self._value, now_ns)

    def publish(self, targets: Sequence[str], now_ns: int) -> Sequence[tuple[str, Update]]:
        """End a gossip interval; what to tell which of the targets."""
        self._meet(now_ns)
        if not self._published:
            # Before the first word others believe that this limiter wants nothing.
            self._told.update(0.0, now_ns)
            self._published = True
        self._told.update(self._value, now_ns)
        return self.fabric.publish(self._value, targets, now_ns)

    def _meet(self, now_ns: int) -> None:
        """Have the fabric know with whom sessions have begun: not at once, for there may be very
        many limits, and whoever can open a session could open many."""
        numbering = self.membership.numbering
        if self._session != numbering.sessions:
            for peer in numbering.met_since(self._session):
                self.fabric.meet(peer, now_ns)
            self._session = numbering.sessions

    def _in_force(self, view: GlobalView, now_ns: int) -> InForce:
        shares = self._shares_in_force.update(self._reachable(view.connected, view.unnamed), now_ns)
        last = self._last_in_force
        if last is None or last[0] != shares:
            last = self._last_in_force = shares, self._shared(shares)
        return last[1]

    def _shared(self, shares: float) -> InForce:
        """Of so large a part of the policy."""
        policy = self.policy
        own = self._share(self.membership.name)
        return InForce(
            rate=policy.rate * shares,
            burst=policy.burst * shares,
            static_rate=policy.rate * own,
            static_burst=policy.burst * own,
            weight=policy.weights.get(self.membership.name, 1.0),
            interval_ns=policy.interval_ns,
            item=policy.unit.item,
        )

    def _reachable(self, connected: Collection[str], unnamed: int) -> float:
        """The sum of the shares of those that are connected, and of this limiter."""
        # Peers come and go seldom, and there may be thousands.
        reached = self._reached
        if reached is not None and reached[0] is connected and reached[1] == unnamed:
            return reached[2]
        shares = self._shares
        own = self._share(self.membership.name)
        others = own * (len(connected) + unnamed)
        if shares:
            others = sum(self._share(peer) for peer in connected)
            if unnamed:
                # Of those that it may be, the ones with the least.
                named = {self.membership.name, *connected}
                rest = [share for member, share in shares.items() if member not in named]
                others += sum(sorted(rest)[:unnamed])
        reachable = min(own + others, 1.0)
        self._reached = connected, unnamed, reachable
        return reachable

    def _share(self, member: str) -> float:
        if self._shares:
            return self._shares.get(member, 0.0)
        return 1 / (len(self.membership.peers) + 1)

    @staticmethod
    def _static(in_force: InForce) -> Enforcement:
        return bucket(in_force.static_rate, in_force.static_burst)
