"""Fair: the flows of the whole fleet get the max-min fair shares of the limit.

The fleet has one level f, the rate that no flow may exceed while others want more. Every limiter
computes the level from its own flows and from one number of its peers. It tells its peers its
weight: the number of flows at the level that its traffic is worth. L is the limit, W the sum of the
peers' weights, and d the rate that a flow wants (drld.allocators.fair_wants):

    sum over the own flows of min(d, f) + W f = L              (drld.allocators.water_level)
    w = sum over the own flows of min(d, f) / f                the weight
    l = L w / (w + W)                                          the local limit

If all views are equal, f is the same everywhere, and the sum over all flows of min(d, f) is L.
This is the paper's FPS (section 3.2.2: "if flows were max-min fair") with its premise made true:
each sampled flow has a bucket that is filled at the level (drld.allocators.fair_flows). The limit's
bucket has the local limit as its fill rate, as far as the limiter's account pays for it
(drld.allocators.fair_bucket).

Together, the flows want at most what the arrivals of the last quarter of a second can use
(`reach`). Without this bound, averages would still count short flows that have ended. If it binds,
it takes the place of the sum in the equation for f: the level rises, and w is as much less. At the
level of the sum, w would be worth a larger local limit than the bound.

A limiter with the configured weight g gives its flows g times the level: min(d, g f) above.

Units: rates tokens/s, weights flows. Invariants: 0 <= l <= L; w f is at most what the flows want.
docs/allocators.md has the measurements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from drld.allocators.base import Allocation, Allocator, InForce, require
from drld.allocators.fair_bucket import FairBucket
from drld.allocators.fair_flows import crowd_drop_probability, flow_buckets
from drld.allocators.fair_wants import Wants
from drld.model import NS_PER_S, Demand, Enforcement, GlobalView, Quantity

AWAKE_NS = NS_PER_S // 4
"""Time after which recent arrivals bound the weight of a limiter that was idle. Slow start is over
then: six doublings at a round trip of 40 ms."""
RECENT_NS = NS_PER_S // 4
"""Time constant of the recent arrival rate: longer than TCP's least timeout of 200 ms. With a tenth
of a second, flows that wait for it together count as if they had ended. On short paths, they come
back to a limiter whose share is gone, time after time (tests/sim/test_short_paths.py)."""
REACH_ITEMS = 5
"""Least packets in `RECENT_NS` by which the reach exceeds the arrivals: packets of a slow flow come
one by one."""


@dataclass(frozen=True, slots=True)
class FairParameters:
    """Parameters of `fair`."""

    margin: Annotated[float, "from 0 to 1"] = 0.2
    """Part of the limit by which the fleet may exceed it while weights keep changing; 0 is the
    strict rule (docs/allocators.md)."""
    headroom: Annotated[float, "above 0 and at most 1"] = 0.1
    """Part of its own rate that a flow wants in addition to it."""
    reach: Annotated[float, "at least 1 + headroom"] = 1.5
    """Largest factor by which the weight may exceed the arrivals of the last quarter of a
    second."""

    def __post_init__(self) -> None:
        require(self, "margin", 0 <= self.margin <= 1)
        require(self, "headroom", 0 < self.headroom <= 1)
        require(self, "reach", self.reach >= 1 + self.headroom)


class Fair(Allocator):
    """Fill the limit's bucket at the local limit, and hold each sampled flow to the level."""

    quantity = Quantity.WEIGHT
    keeps_share = True
    Parameters = FairParameters

    def __init__(self, parameters: FairParameters) -> None:
        super().__init__(parameters)
        self.parameters: FairParameters = parameters
        self._level: float | None = None
        self._recent = 0.0
        """Rate of arrival in the last quarter of a second, tokens/s."""
        self._awake_ns = 0
        """Time since the limiter was last idle, ns."""
        self._bucket = FairBucket(parameters.margin)

    @property
    def settled(self) -> bool:
        """See `Allocator`."""
        return self._bucket.settled

    def allocate(
        self, demand: Demand, view: GlobalView, limit: InForce, interval_ns: int
    ) -> Allocation:
        """Compute the level, the weight, the local limit and the record to enforce."""
        if limit.rate <= 0:
            return Allocation(0.0, Enforcement(fill_rate=0, depth=0), 0.0)
        self._awake_ns = 0 if demand.idle else self._awake_ns + interval_ns
        level = limit.rate if self._level is None else self._level
        wants = Wants(demand, level, self.parameters.headroom, interval_ns)
        refill = self._refill(wants)
        # g is the limiter's weight, g f its own level: sum min(d, g f) + (W / g) g f = L.
        others = view.remote / limit.weight
        level = wants.level(limit.rate, others)
        wanted = wants.used(level)
        used = min(wanted, self._reach(demand, limit.item, interval_ns) + refill)
        if used < wanted:
            level = min((limit.rate - used) / others, limit.rate) if others else limit.rate
        self._level = level
        weight = limit.weight * used / level
        depth = round(self._bucket.settle(weight, demand, view, limit, interval_ns))
        enforcement = self._enforcement(wants, demand, depth, limit.item)
        return Allocation(weight, enforcement, self._bucket.fill_rate)

    def _refill(self, wants: Wants) -> float:
        """Add what the bucket and the account want to the wants; return it, tokens/s."""
        refill = 0.0 if wants.unlimited else self._bucket.wanted_rate
        if refill:
            if wants.rates and self._level:
                refill = min(refill, self.parameters.headroom * self._level)
            wants.add(refill)
        return refill

    def _enforcement(self, wants: Wants, demand: Demand, depth: int, item: int) -> Enforcement:
        """The limit's bucket, and what polices single flows if there are several."""
        fill_rate = self._bucket.fill_rate
        flow_rate = flow_depth = reserve = 0
        drop_probability = 0.0
        if demand.flows > 1 or demand.rest:
            # The fill rate in force may be below the local limit.
            level = wants.level(max(fill_rate, 1.0))
            wanted = wants.divided(level)
            flow_rate, flow_depth, reserve = flow_buckets(
                depth, level, wanted, demand, crowd=wants.crowd, item=item
            )
            if wants.crowd:
                drop_probability = crowd_drop_probability(
                    demand, flow_rate, self._recent, fill_rate
                )
        return Enforcement(
            drop_probability=drop_probability,
            fill_rate=round(fill_rate),
            depth=depth,
            flow_rate=flow_rate,
            flow_depth=flow_depth,
            reserve=reserve,
        )

    def _reach(self, demand: Demand, item: int, interval_ns: int) -> float:
        """The largest local limit that the present arrivals can use, tokens/s."""
        kept = math.exp(-interval_ns / RECENT_NS)
        self._recent = kept * self._recent + (1 - kept) * demand.instant_rate
        if self._awake_ns <= max(AWAKE_NS, interval_ns):
            return math.inf
        items = REACH_ITEMS * item * NS_PER_S / RECENT_NS
        return max(self.parameters.reach * self._recent, self._recent + items)
