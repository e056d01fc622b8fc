"""One limit on one limiter: estimator, fabric and allocator put together, without any I/O.

The daemon, the simulator and the tests drive this class alike. `receive` takes decoded updates.
Once an estimate interval, `tick` takes a `Measurement` and returns a `Tick` to carry out. Once a
gossip interval, `publish` returns the updates for the round's targets. All limits of a daemon share
its `Membership`. A `quiescent` limit needs no calls until a packet or an update comes or the
membership changes.

The conservative rule (paper, section 5.6; docs/conservative-rule.md): the limit shrinks by the
static share of each peer without fresh updates. Later the peer's demand counts zero. The limit in
force falls at once. It rises when more peers have been connected for `Membership.rise_ns`, because
all limiters must know their demand before any limiter uses their shares. A limiter without a
connected peer and without a fresh sum is held to its static share: as a plain bucket, or by the
record of an allocator that keeps to that share itself (`Allocator.keeps_share`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from drld.allocators import ALLOCATORS
from drld.allocators.base import Allocation, InForce, bucket
from drld.estimate.demand import DemandEstimator
from drld.gossip.fabrics import FABRICS
from drld.gossip.fabrics.base import Fabric
from drld.gossip.fabrics.membership import Membership
from drld.gossip.fabrics.sliding_min import SlidingMin
from drld.gossip.wire.update_codec import MAX_VALUE, to_float32
from drld.model import Demand, Enforcement, FlowId, GlobalView, Measurement, Quantity, Update
from drld.policy import Mode, Policy
from drld.record import record
from drld.units import Unit


def static_share(policy: Policy, part: float) -> Enforcement:
    """The record that enforces a part of the limit as a plain bucket; none if it is paused, or has
    a bucket for each key."""
    if policy.mode is Mode.PAUSE or policy.keyed:
        return Enforcement()
    return bucket(policy.rate * part, policy.burst * part)


def share_of(shares: Mapping[str, float], name: str, members: int) -> float:
    """A limiter's static share of 1; `shares` are empty if those of all `members` are equal."""
    return shares.get(name, 0.0) if shares else 1 / members


@record(frozen=True, slots=True)
class Tick:
    """The result of one estimate interval."""

    enforcement: Enforcement
    evict: Collection[FlowId]
    """Flows to drop from the datapath's sample."""
    measurement: Measurement
    demand: Demand
    view: GlobalView
    in_force: InForce
    quantity: Quantity
    """The quantity of `allocation.value` and `view.remote`."""
    unit: Unit
    """The unit of the limit."""
    allocation: Allocation


@dataclass(slots=True)
class _Shared:
    """One quantity of the limit that the limiters tell each other."""

    fabric: Fabric[Any]
    value: float = 0.0
    """The value that the next `publish` sends to the fleet."""
    told: SlidingMin = field(default_factory=lambda: SlidingMin(0))
    """The least value that a peer may still believe."""
    remote: SlidingMin = field(default_factory=lambda: SlidingMin(0))
    """The least sum of its peers' values that this limiter believed in the same time."""

    @property
    def quiescent(self) -> bool:
        """Whether nothing is told, and nothing else is believed or known."""
        return not self.value and self.told.settled and self.fabric.quiet


class Limiter:
    """One limit on one limiter."""

    def __init__(self, policy: Policy, membership: Membership, fabric: str) -> None:
        """`fabric` is the one that the membership was made for."""
        self.policy = policy
        self.membership = membership
        allocator = ALLOCATORS[policy.allocator]
        self._allocator = allocator(policy.parameters)
        self._demand = DemandEstimator(policy.ewma, policy.unit.item)
        self._shares = policy.shares
        """Static shares by limiter; empty if all are equal."""
        self._reached: tuple[Collection[str], int, float] | None = None
        """The connected peers at the last tick, the number of unnamed ones, and the sum of their
        shares and this limiter's."""
        self._shares_in_force = SlidingMin(membership.rise_ns)
        """The sum of the shares of connected limiters, once it has lasted for
        `Membership.rise_ns`."""
        self._published = False
        self._news_ns = 0
        self._last_in_force: tuple[float, InForce] | None = None
        """The last sum of shares, and its `InForce`."""
        kind = FABRICS[fabric]
        second = [allocator.second] if allocator.second and kind.carries_second else []
        self._shared = tuple(
            _Shared(
                kind(
                    membership=membership,
                    limit_id=policy.id,
                    quantity=quantity,
                    share=self._share,
                )
            )
            for quantity in (allocator.quantity, *second)
        )
        """The allocator's quantities in their order. Their updates share one sequence."""
        self.fabrics = tuple(shared.fabric for shared in self._shared)
        self.fabric = self.fabrics[0]
        """The fabric of the allocator's first quantity."""
        self._remember()

    def _remember(self) -> None:
        """Remember published values for as long as a peer may believe them."""
        lossy = self._allocator.counts_loss
        news_ns = self.membership.forgotten_ns if lossy else self.fabric.news_ns
        # A peer uses a value until its next tick.
        news_ns += self.policy.interval_ns
        if news_ns != self._news_ns:
            self._news_ns = news_ns
            for shared in self._shared:
                shared.told = shared.told.over(news_ns)
                shared.remote = shared.remote.over(news_ns)

    def reconfigure(self, policy: Policy, departed: Collection[str] = ()) -> None:
        """Take over a changed policy (same id, allocator and EWMA) and the membership's peers.

        `departed` are peers of the membership that the configuration has removed. Until they are
        forgotten, no limiter's share grows.
        """
        reached = self._reached
        shares = policy.shares
        if shares and departed:
            before = self._shares
            shares = {name: min(part, before.get(name, part)) for name, part in shares.items()}
            shares |= {name: before[name] for name in departed if name in before}
        self.policy = policy
        self._shares = shares
        self._reached = self._last_in_force = None
        # The shares in force are those of the same limiters, at their new values.
        factor = 1.0
        if reached is not None:
            connected, unnamed, before_sum = reached
            factor = self._reachable(connected, unnamed) / before_sum if before_sum else 0.0
        self._shares_in_force = self._shares_in_force.over(self.membership.rise_ns, factor)
        for fabric in self.fabrics:
            fabric.set_peers()
        self._remember()

    def on_session(self, peer: str) -> None:
        """A session with another life of the peer has begun."""
        for fabric in self.fabrics:
            fabric.on_session(peer)

    def receive(self, peer: str, update: Update, now_ns: int) -> None:
        """Pass a peer's update of this limit to the fabric of its quantity; the first one rejects
        those of no quantity that is shared."""
        receiver = self.fabric
        if update.quantity is not receiver.quantity:
            others = (it for it in self.fabrics if it.quantity is update.quantity)
            receiver = next(others, receiver)
        receiver.receive(peer, update, now_ns)

    def initial(self) -> Enforcement:
        """The record to enforce until the first tick: the static share."""
        return static_share(self.policy, self._share(self.membership.name))

    @property
    def quiescent(self) -> bool:
        """Whether a tick would change nothing, as long as no packet and no update comes and the
        membership stays the same."""
        if not (self._demand.idle and self._shares_in_force.settled):
            return False
        if self.only_measures:
            return True
        return all(shared.quiescent for shared in self._shared) and self._allocator.settled

    @property
    def only_measures(self) -> bool:
        """Whether nothing but figures for operators depends on when ticks come. In shadow mode,
        the suggested rates depend on it (`drld.estimate.traffic_profile`)."""
        return not self._allocator.follows_demand and self.policy.mode is not Mode.SHADOW

    def tick(self, measurement: Measurement, now_ns: int) -> Tick:
        """End an estimate interval.

        Raises:
            ValueError: the measurement's interval is not positive.
        """
        demand, evict = self._demand.update(measurement)
        seen = self.fabric.view(now_ns)
        # On push-sum it depends on how many limiters are connected.
        self._remember()
        first = self._shared[0]
        view = GlobalView(
            seen.remote, seen.connected, seen.age_ns, seen.unnamed,
            told=first.told.latest(now_ns),
            least_remote=first.remote.update(seen.remote, now_ns), news_ns=self._news_ns,
        )  # fmt: skip
        for second in self._shared[1:]:
            found = replace(second.fabric.view(now_ns), told=second.told.latest(now_ns))
            view = replace(view, claims=seen.claims, second=found)
        in_force = self._in_force(view, now_ns)
        allocation = self._allocator.allocate(demand, view, in_force, measurement.interval_ns)
        for shared, value in zip(self._shared, (allocation.value, allocation.second), strict=False):
            # Figure 2's line 9 has no upper bound.
            shared.value = min(value, MAX_VALUE)
        unpoliced = self.policy.mode is Mode.PAUSE or self.policy.keyed is not None
        alone = bool(self.membership.peers) and not view.connected and not view.remote
        plain = unpoliced or (alone and not self._allocator.keeps_share)
        return Tick(
            enforcement=self.initial() if plain else allocation.enforcement,
            evict=evict,
            measurement=measurement,
            demand=demand,
            view=view,
            in_force=in_force,
            quantity=self.fabric.quantity,
            unit=self.policy.unit,
            allocation=allocation,
        )

    def pressing(self, now_ns: int) -> bool:
        """Whether `publish` cannot wait for the end of the gossip interval."""
        return any(shared.fabric.pressing(shared.value, now_ns) for shared in self._shared)

    def publish(self, targets: Sequence[str], now_ns: int) -> Sequence[tuple[str, Update]]:
        """End a gossip interval; return updates with the targets that they go to."""
        updates: list[tuple[str, Update]] = []
        for shared in self._shared:
            if not self._published:
                # Before its first update, peers believe that this limiter has no demand.
                shared.told.update(0.0, now_ns)
            # As peers read it.
            shared.told.update(to_float32(shared.value), now_ns)
            updates += shared.fabric.publish(shared.value, targets, now_ns)
        self._published = True
        return updates

    def _in_force(self, view: GlobalView, now_ns: int) -> InForce:
        shares = self._shares_in_force.update(self._reachable(view.connected, view.unnamed), now_ns)
        if self.policy.keyed is not None:
            shares = 1.0  # Nothing is divided: each limiter admits the whole rate of a key.
        last = self._last_in_force
        if last is None or last[0] != shares:
            last = self._last_in_force = shares, self._of_shares(shares)
        return last[1]

    def _of_shares(self, shares: float) -> InForce:
        """The limit in force for a sum of shares."""
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
            whole_rate=policy.rate,
            whole_burst=policy.burst,
            least_burst=policy.burst * self._least_share(),
        )

    def _least_share(self) -> float:
        """The smallest share of those that have one."""
        own = self._share(self.membership.name)
        return min((share for share in self._shares.values() if share), default=own)

    def _reachable(self, connected: Collection[str], unnamed: int) -> float:
        """The sum of the shares of all connected peers and of this limiter."""
        # There may be thousands of peers, and they rarely change.
        reached = self._reached
        if reached is not None and reached[0] is connected and reached[1] == unnamed:
            return reached[2]
        shares = self._shares
        own = self._share(self.membership.name)
        others = own * (len(connected) + unnamed)
        if shares:
            others = sum(self._share(peer) for peer in connected)
            if unnamed:
                # Unnamed limiters count with the smallest shares that they may have.
                named = {self.membership.name, *connected}
                rest = [share for member, share in shares.items() if member not in named]
                others += sum(sorted(rest)[:unnamed])
        reachable = min(own + others, 1.0)
        self._reached = connected, unnamed, reachable
        return reachable

    def _share(self, member: str) -> float:
        return share_of(self._shares, member, len(self.membership.peers) + 1)
