"""One limit on one limiter: estimator, fabric and allocator put together, without any I/O.

The daemon, the simulator and the tests all drive this class: feed it decoded updates with
`receive`, and once an estimate interval a `Measurement` with `tick`; do what the `Tick` says.

The conservative rule (paper, section 5.6): for each limiter from which no fresh updates come, the
limit shrinks by that limiter's static share and its estimate counts zero. A limiter that hears
nobody enforces its static share as a plain bucket, whatever the allocator.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from random import Random

from drld.allocators import ALLOCATORS
from drld.allocators.base import Allocation, InForce, bucket
from drld.estimate.demand import DemandEstimator
from drld.gossip import FABRICS
from drld.gossip.base import Fabric
from drld.model import Demand, Enforcement, FlowId, GlobalView, Measurement, Quantity, Update
from drld.spec import GossipSpec, LimitSpec


@dataclass(frozen=True, slots=True)
class Tick:
    """What one estimate interval leads to."""

    enforcement: Enforcement
    evict: list[FlowId]
    """Flows to drop from the datapath's sample."""
    updates: list[tuple[str, Update]]
    """Updates to send, each with the name of its receiver."""
    measurement: Measurement
    demand: Demand
    view: GlobalView
    in_force: InForce
    quantity: Quantity
    """What `allocation.value` and `view.remote` are."""
    allocation: Allocation


class Limiter:
    """One limit on one limiter."""

    def __init__(
        self, limit: LimitSpec, name: str, members: Collection[str], gossip: GossipSpec
    ) -> None:
        """`members` are the names of all limiters of the fleet, `name` (this one) included."""
        self.name = name
        self.limit = limit
        self.members = frozenset(members)
        allocator = ALLOCATORS[limit.allocator]
        self._allocator = allocator(limit.parameters)
        self._demand = DemandEstimator(limit.ewma)
        self._gossip_interval_ns = gossip.interval_ns
        self._publish_due_ns = 0
        self.fabric: Fabric = FABRICS[gossip.fabric](
            name=name,
            peers=self.members - {name},
            limit_id=limit.id,
            quantity=allocator.quantity,
            branching=gossip.branching,
            interval_ns=max(gossip.interval_ns, limit.interval_ns),
        )

    def reconfigure(self, limit: LimitSpec, members: Collection[str], now_ns: int) -> None:
        """Take over a changed limit (same id, allocator and EWMA) and fleet; knowledge stays."""
        self.limit = limit
        if self.members != frozenset(members):
            self.members = frozenset(members)
            self.fabric.set_peers(self.members - {self.name}, now_ns)

    def receive(self, peer: str, update: Update, now_ns: int) -> None:
        """Take in an update of this limit from a peer."""
        self.fabric.receive(peer, update, now_ns)

    def initial(self) -> Enforcement:
        """What to enforce until the first tick: the static share."""
        return self._static(self._in_force(frozenset()))

    def tick(self, measurement: Measurement, now_ns: int, rng: Random) -> Tick:
        """End an estimate interval.

        Raises:
            ValueError: the measurement's interval is not positive.
        """
        demand, evict = self._demand.update(measurement)
        view = self.fabric.view(now_ns)
        in_force = self._in_force(view.connected)
        allocation = self._allocator.allocate(demand, view, in_force, measurement.interval_ns)
        alone = len(self.members) > 1 and not view.connected
        return Tick(
            enforcement=self._static(in_force) if alone else allocation.enforcement,
            evict=evict,
            updates=self._publish(allocation.value, now_ns, rng),
            measurement=measurement,
            demand=demand,
            view=view,
            in_force=in_force,
            quantity=self.fabric.quantity,
            allocation=allocation,
        )

    def _publish(self, value: float, now_ns: int, rng: Random) -> list[tuple[str, Update]]:
        """Share the value at the tick that is nearest to each multiple of the gossip interval."""
        if now_ns + self.limit.interval_ns // 2 < self._publish_due_ns:
            return []
        # On time the grid stays; after a stall a new one begins.
        interval_ns = self._gossip_interval_ns
        self._publish_due_ns = max(self._publish_due_ns + interval_ns, now_ns + interval_ns // 2)
        return self.fabric.publish(value, now_ns, rng)

    def _in_force(self, connected: Collection[str]) -> InForce:
        limit = self.limit
        own = self._share(self.name)
        reachable = min(own + sum(self._share(peer) for peer in connected), 1.0)
        return InForce(
            rate=limit.rate * reachable,
            burst=limit.burst * reachable,
            static_rate=limit.rate * own,
            static_burst=limit.burst * own,
        )

    def _share(self, member: str) -> float:
        return self.limit.shares.get(member, 0.0) if self.limit.shares else 1 / len(self.members)

    @staticmethod
    def _static(in_force: InForce) -> Enforcement:
        return bucket(in_force.static_rate, in_force.static_burst)
