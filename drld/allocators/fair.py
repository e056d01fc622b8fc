"""Fair: the flows of the whole fleet get the max-min fair shares of the limit.

The fleet has one level f, the rate that no flow may exceed while others want more. Every limiter
computes the level from its own flows and from one number of its peers. It tells its peers its
weight: the number of flows at the level that its traffic is worth. L is the limit, W the sum of the
peers' weights, and d the rate that a flow wants:

    sum over the own flows of min(d, f) + W f = L              (drld.allocators.water_level)
    w = sum over the own flows of min(d, f) / f                the weight
    l = L w / (w + W)                                          the local limit

If all views are equal, f is the same everywhere, and the sum over all flows of min(d, f) is L.
This is the paper's FPS (section 3.2.2: "if flows were max-min fair") with its premise made true:
each sampled flow has a bucket that is filled at the level (drld.allocators.fair_flows). The limit's
bucket has the local limit as its fill rate, as far as the limiter's account pays for it
(drld.allocators.fair_bucket).

The rate that a flow wants

- A flow whose packets were refused or marked lately wants all it can get, if it sends at least
  `WHOLE` of the level. TCP swings between half and one and a half of its share. If such a flow
  counted as its present rate, it would be given that rate, and less each time.
- A flow that began in the last interval wants twice what it sent, since it was seen for half of
  the interval on average.
- Any other flow wants `headroom` more than it sends, so that noise alone limits no flow.

Flows outside the sample count like as many sampled ones as carry their bytes. Together, the flows
want at most what the arrivals of the last tenth of a second can use (`reach`). Without this bound,
averages would still count short flows that have ended. If it binds, it takes the place of the sum
in the equation for f: the level rises, and w is as much less. At the level of the sum, w would be
worth a larger local limit than the bound.

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
from drld.allocators.fair_flows import CROWD_COPIES, crowd_drop_probability, flow_buckets
from drld.allocators.water_level import water_level
from drld.model import NS_PER_S, Demand, Enforcement, GlobalView, Quantity

AWAKE_NS = NS_PER_S // 4
"""Time after which recent arrivals bound the weight of a limiter that was idle. Slow start is over
then: six doublings at a round trip of 40 ms."""
HOLD_NS = NS_PER_S // 2
"""Time for which a refused packet shows that its flow wants more: several round trips, since few
flows lose a packet in each."""
WHOLE = 0.25
"""Part of the level above which a refused flow wants all it can get: half of TCP's lowest swing."""
RECENT_NS = NS_PER_S // 10
"""Time constant of the recent arrival rate."""
REACH_ITEMS = 2
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
    """Largest factor by which the weight may exceed the arrivals of the last tenth of a second."""

    def __post_init__(self) -> None:
        require(self, "margin", 0 <= self.margin <= 1)
        require(self, "headroom", 0 < self.headroom <= 1)
        require(self, "reach", self.reach >= 1 + self.headroom)


class Fair(Allocator):
    """Fill the limit's bucket at the local limit, and hold each sampled flow to the level."""

    quantity = Quantity.WEIGHT
    Parameters = FairParameters

    def __init__(self, parameters: FairParameters) -> None:
        super().__init__(parameters)
        self.parameters: FairParameters = parameters
        self._level: float | None = None
        self._recent = 0.0
        """Rate of arrival in the last tenth of a second, tokens/s."""
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
        wants, unlimited, copies = self._wants(demand, limit, interval_ns)
        refill = 0.0 if unlimited else self._bucket.wanted_rate
        if refill:
            if wants and self._level:
                refill = min(refill, self.parameters.headroom * self._level)
            wants.append(refill / copies)
        # g is the limiter's weight, g f its own level: sum min(d, g f) + (W / g) g f = L.
        others = view.remote / limit.weight
        level = water_level(limit.rate / copies, wants, unlimited + others / copies)
        wanted = copies * (unlimited * level + sum(min(want, level) for want in wants))
        used = min(wanted, self._reach(demand, limit.item, interval_ns) + refill)
        if used < wanted:
            level = min((limit.rate - used) / others, limit.rate) if others else limit.rate
        self._level = level
        weight = limit.weight * used / level
        bucket = self._bucket
        depth = round(bucket.settle(weight, demand, view, limit, interval_ns))
        flow_rate = flow_depth = reserve = 0
        drop_probability = 0.0
        if demand.flows > 1 or demand.rest:
            # The fill rate in force may be below the local limit.
            level = water_level(max(bucket.fill_rate, 1.0) / copies, wants, unlimited)
            flow_rate, flow_depth, reserve = flow_buckets(depth, level, demand, copies, limit.item)
            if copies > CROWD_COPIES:
                drop_probability = crowd_drop_probability(
                    demand, flow_rate, self._recent, bucket.fill_rate
                )
        enforcement = Enforcement(
            drop_probability=drop_probability,
            fill_rate=round(bucket.fill_rate),
            depth=depth,
            flow_rate=flow_rate,
            flow_depth=flow_depth,
            reserve=reserve,
        )
        return Allocation(weight, enforcement, bucket.fill_rate)

    def _wants(
        self, demand: Demand, limit: InForce, interval_ns: int
    ) -> tuple[list[float], int, float]:
        """Wanted rates, tokens/s; number of flows that want all; flows per sampled flow."""
        level = limit.rate if self._level is None else self._level
        more = 1 + self.parameters.headroom
        hold_ns = max(HOLD_NS, interval_ns)
        wants: list[float] = []
        unlimited = 0
        sampled = sum(flow.fast for flow in demand.sample)
        copies = 1 + demand.rest / sampled if sampled else 1.0
        crowd = copies > CROWD_COPIES
        for flow in demand.sample:
            if not crowd and flow.age_ns <= interval_ns:
                wants.append(2 * flow.last)
            elif flow.paused:
                continue
            elif flow.unhit_ns < hold_ns and flow.fast >= WHOLE * level:
                unlimited += 1
            else:
                wants.append(more * flow.fast)
        if demand.rest and not sampled:
            wants.append(more * demand.rest)
        return wants, unlimited, copies

    def _reach(self, demand: Demand, item: int, interval_ns: int) -> float:
        """The largest local limit that the present arrivals can use, tokens/s."""
        kept = math.exp(-interval_ns / RECENT_NS)
        self._recent = kept * self._recent + (1 - kept) * demand.instant_rate
        if self._awake_ns <= max(AWAKE_NS, interval_ns):
            return math.inf
        items = REACH_ITEMS * item * NS_PER_S / RECENT_NS
        return max(self.parameters.reach * self._recent, self._recent + items)
