"""Flow proportional share (FPS; paper, section 3.2.2 and figure 2).

Limiters share flow weights instead of rates: w_i is the number of unbottlenecked flows that
limiter i's traffic is worth. Each polices its local limit, a token bucket filled at

    l_i = L * w_i / (w_i + sum over j != i of w_j)                       (line 10)

so every unbottlenecked flow of the fleet gets the same rate, as in one bucket. The weight comes
from one of two regimes.

Saturated (at least one flow is limited here; lines 5 and 6). The weight is the aggregate divided
by the rate f of an unbottlenecked flow: w_i = r_i / f. If all flows are unbottlenecked that is
their number; a flow bottlenecked elsewhere counts the fraction of f that it sends.

Unsaturated (every flow is limited elsewhere; lines 8 and 9). The weight that makes the local
limit equal to what is demanded, with some headroom h: w_i = r * W / (L - r), where
r = (1 + h) * r_i and W is the remote weight.

Units: rates tokens/s, weights dimensionless. Invariants: 0 <= l_i <= L; equal views make the l_i
sum to L; the appendix's fixed point w_i = l_i a_i / (l_i - B_i) holds (tests/property).

Differences from figure 2 (`fps-paper` is figure 2 as printed; docs/allocators.md has the effects):

1. r_i / f, not l_i / f. At the fixed point they are equal. Elsewhere both rates went through the
   same filter, so the quotient keeps the number of flows while the limit moves and after a loss of
   TCP. Traffic that ignores drops does not lower its own weight.
2. f is the mean of the fast flows (drld.estimate.flows). The maximum of n noisy rates grows with n
   and would cost the limiter with more flows part of its share.
3. A limiter is saturated for `hold_s` after a drop, or after a demand above `saturation` of the
   local limit. "Demand >= limit" takes the dip after each loss for the other regime.
4. Headroom. With l_i exactly the demand, noise alone saturates a limiter whose flows are all
   bottlenecked elsewhere. It would then claim the share of all its flows. So (1 + h) * saturation
   must exceed 1.
5. The weight rises at most `growth`-fold a second, and only on evidence. The paper's EWMA smooths
   the oscillation between the regimes, but it delays falling, which is safe, as much as rising.
6. Unsaturated weights stay between `min_weight` and the flow count. If no limiter is saturated,
   line 9 only relates the weights to each other. They would fall to 0 or grow without bound.
7. A limiter tells at most the weight of `reach` times the arrivals of the last tenth of a second.
   Demand of short flows (web requests) halves within that time, and filters remember it for a
   second. The limiter itself keeps its weight, so a pause of TCP costs a tick or two.

Depth. It falls with the square root of the larger of local limit and static share, over L: flows
that share a bucket do not all lose at once (Appenzeller et al., "Sizing router buffers", SIGCOMM
2004). A new flow's SYN and initial window must pass: `depth_packets`. So N limiters hold at most
sqrt(2 N) depths, and N initial windows if a static share's depth is below one.

Slow start (end of section 3.2.2). An idle limiter's limit is 0, and its bucket may be empty. So it
has a credit of `depth_packets` (drld.allocators.start_credit). The paper gives a new flow its
instantaneous rate for one interval. Slow start doubles the rate in the next, and a flow that loses
the difference needs a round trip for each packet more. So for `start_s` all flows of a limiter that
was idle count as unbottlenecked.

Leaving. A limiter whose flows are all silent tells no more than `min_weight`. The others then have
its share within a few intervals. It keeps its own weight, in case the flows were only in a timeout.

`fps-random-drop` (the paper's footnote 3) has the same weights and local limits. It enforces them
as GRD does, by p = (r_i - l_i) / r_i (drld.allocators.random_drop). Its guard is FPS's own bucket,
filled `_GUARD_MARGIN` faster: as the local limits sum to L, at most 1.1 L passes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from drld.allocators.base import (
    INITIAL_WINDOW_ITEMS,
    Allocation,
    Allocator,
    InForce,
    bucket,
    require,
)
from drld.allocators.random_drop import LEAD, excess_ratio, guarded, leading
from drld.allocators.start_credit import StartCredit
from drld.estimate.ewma import Ewma
from drld.model import NS_PER_S, Demand, Enforcement, GlobalView, Quantity

_RECENT_HISTORY = 1e-4
"""Weight that history one second old keeps: a time constant of about a tenth of a second."""
_LONGEST_RISE_S = 10.0
"""Longest interval in which the weight rises: the longest that a configuration may ask for. A
daemon that was stopped for minutes has seen nothing meanwhile, and the power would overflow."""
_GUARD_MARGIN = 0.1
"""Part by which the guard of random drop fills faster than the local limit. With 0.05, flows need
0.2 s longer to take a share that has become free."""


@dataclass(frozen=True, slots=True)
class FpsParameters:
    """Parameters of `fps` and `fps-random-drop`.

    The defaults are those that docs/reproduction.md measures.
    """

    headroom: Annotated[float, "above 1 / saturation - 1"] = 0.1
    """Part of its demand by which a limiter whose flows are all limited elsewhere may exceed it."""
    saturation: Annotated[float, "above 0 and at most 1"] = 0.95
    """Part of the local limit from which demand counts as having reached it."""
    hold_s: Annotated[float, "from 0 to 3600"] = 1.0
    """Seconds for which evidence of saturation (a drop, such a demand) counts."""
    growth: Annotated[float, "above 1 and at most 1000000"] = 100.0
    """Largest factor by which the weight may rise in a second."""
    start_s: Annotated[float, "from 0 to 3600"] = 0.25
    """Seconds after an idle time for which flows count as unbottlenecked."""
    min_weight: Annotated[float, "above 0 and at most 1000"] = 0.1
    """Smallest weight of a limiter that has traffic, in flows."""
    depth_packets: Annotated[int, "from 1 to 1000000"] = INITIAL_WINDOW_ITEMS
    """Smallest depth of the local bucket, in packets of 1,500 bytes."""
    reach: Annotated[float, "at least 1 + headroom"] = 1.5
    """Largest factor by which the local limit may exceed the arrivals of the last tenth of a
    second; `fps` only."""

    def __post_init__(self) -> None:
        require(self, "saturation", 0 < self.saturation <= 1)
        require(self, "headroom", (1 + self.headroom) * self.saturation > 1)
        require(self, "hold_s", 0 <= self.hold_s <= 3600)
        require(self, "growth", 1 < self.growth <= 1e6)
        require(self, "start_s", 0 <= self.start_s <= 3600)
        require(self, "min_weight", 0 < self.min_weight <= 1000)
        require(self, "depth_packets", 1 <= self.depth_packets <= 1_000_000)
        require(self, "reach", self.reach >= 1 + self.headroom)


class FlowProportionalShare(Allocator):
    """Fill at the local limit."""

    quantity = Quantity.WEIGHT
    Parameters = FpsParameters

    def __init__(self, parameters: FpsParameters) -> None:
        super().__init__(parameters)
        self.parameters: FpsParameters = parameters
        self._weight = 0.0
        self._local_limit: float | None = None
        self._recent = Ewma(_RECENT_HISTORY)
        self._since_evidence_ns = round(parameters.hold_s * NS_PER_S)
        self._since_start_ns = 0
        self._starting = False
        self._credit = StartCredit()

    def allocate(
        self, demand: Demand, view: GlobalView, limit: InForce, interval_ns: int
    ) -> Allocation:
        """Compute weight and local limit, and the enforcement of the latter."""
        self._weight = self._next_weight(demand, view, limit, interval_ns)
        weight = min(self._weight, self._usable(demand, view, limit, interval_ns))
        total = weight + view.remote
        # While no limiter has a demand, each begins at its static share.
        local_limit = limit.rate * weight / total if total else limit.static_rate
        self._local_limit = local_limit
        return Allocation(weight, self._enforce(demand, local_limit, limit), local_limit)

    def _next_weight(
        self, demand: Demand, view: GlobalView, limit: InForce, interval_ns: int
    ) -> float:
        if demand.idle:
            self._since_evidence_ns = round(self.parameters.hold_s * NS_PER_S)
            self._since_start_ns = 0
            self._starting = False
            return 0.0
        self._starting = self._since_start_ns < self.parameters.start_s * NS_PER_S
        self._since_start_ns += interval_ns
        evidence = not demand.first and self._saturating(demand)
        self._since_evidence_ns = 0 if evidence else self._since_evidence_ns + interval_ns
        wanted = (1 + self.parameters.headroom) * demand.rate
        if self._starting or view.remote == 0:
            # Without a remote weight, line 9 gives zero, and no share depends on this weight.
            weight = self._flow_count(demand)
        elif self._since_evidence_ns < self.parameters.hold_s * NS_PER_S or wanted >= limit.rate:
            ceiling = self._weight
            if evidence or wanted >= limit.rate:
                elapsed_s = min(interval_ns / NS_PER_S, _LONGEST_RISE_S)
                ceiling *= self.parameters.growth**elapsed_s
            weight = min(self._flow_count(demand), ceiling)
        else:
            weight = min(wanted * view.remote / (limit.rate - wanted), self._flow_count(demand))
        return max(weight, self.parameters.min_weight)

    def _usable(self, demand: Demand, view: GlobalView, limit: InForce, interval_ns: int) -> float:
        """The largest weight that the present arrivals can use, flows."""
        reach = self._reach(demand, interval_ns)
        if not demand.long_rate:
            return self.parameters.min_weight
        if self._starting or view.remote == 0 or reach >= limit.rate:
            return math.inf
        return max(reach * view.remote / (limit.rate - reach), self.parameters.min_weight)

    def _reach(self, demand: Demand, interval_ns: int) -> float:
        """The largest local limit that the present arrivals can use, tokens/s."""
        if demand.idle:
            self._recent.restart()
        return self.parameters.reach * self._recent.update(demand.instant_rate, interval_ns)

    def _saturating(self, demand: Demand) -> bool:
        limit = self._local_limit
        return demand.drop_ratio > 0 or (
            limit is not None and demand.rate >= self.parameters.saturation * limit
        )

    def _flow_count(self, demand: Demand) -> float:
        """The equivalent number of unbottlenecked flows; the last weight if none was sampled."""
        return demand.long_rate / demand.flow_rate if demand.flow_rate else self._weight

    def _enforce(self, demand: Demand, local_limit: float, limit: InForce) -> Enforcement:
        # If the static share is zero, so is the limit in force while no peer is connected.
        part = max(local_limit, limit.static_rate) / limit.rate if limit.rate else 0.0
        initial = self.parameters.depth_packets * limit.item
        polices = bucket(local_limit, limit.burst * math.sqrt(part), initial)
        return self._credit.added_to(polices, initial, idle=demand.idle)


class FlowProportionalShareRandomDrop(FlowProportionalShare):
    """Drop the excess over the local limit at random; the bucket is its guard."""

    def _reach(self, demand: Demand, interval_ns: int) -> float:
        # Arrivals swing with the drops here. A limit that followed them would swing, too.
        return math.inf

    def _enforce(self, demand: Demand, local_limit: float, limit: InForce) -> Enforcement:
        rate = leading(demand, LEAD)
        if self._starting:
            # The average does not follow slow start, which doubles in each round trip.
            rate = max(rate, demand.instant_rate)
        polices = super()._enforce(demand, local_limit, limit)
        return guarded(excess_ratio(rate, local_limit), polices, _GUARD_MARGIN)
