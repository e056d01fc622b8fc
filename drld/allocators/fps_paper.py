"""Flow proportional share as the paper prints it (section 3.2.2, figure 2), the baseline of `fps`.

With demand r_i, local limit l_i, limit L, remote weight W (the sum of the other w_j), and the rate
f of the fastest flow of the sample:

    lines 4 to 6    where r_i >= l_i    w_i = l_i / f
    lines 8 and 9   elsewhere           w_i = r_i * W / (L - r_i)
    line 10                             l_i = L * w_i / (w_i + W)

The end of section 3.2.2 adds three rules that no line of the figure shows:

- An EWMA smooths the weight. Its parameter is that of the rates in section 5, 0.1 a second.
- New demand counts as a bottlenecked flow in its first interval (line 9), so the flow is given its
  instantaneous rate. The average begins with that weight.
- A limiter with a local limit of zero lets a flow begin: it has a credit of an initial window.

Each limiter's bucket is as deep as the limit's, because the paper does not divide the depth.

The paper leaves three cases open. Where W is 0, line 9 gives 0 and line 10 divides 0 by 0. Where
the first interval has r_i >= L, line 9 has no solution. In both cases the weight is r_i / f, the
number of flows. While no flow has been sampled, the last weight stays.

Both r_i and f are drld's estimates (drld.estimate). f is smoothed more than line 2 asks for. With
r_i's own filter, the fastest of n flows would be faster, and the split would lean further.

Units: rates tokens/s, weights dimensionless. Invariants: 0 <= l_i <= L; the appendix's fixed point
w_i = l_i a_i / (l_i - B_i) holds (tests/property). drld.allocators.fps lists the differences of
`fps`, with reasons.
"""

from __future__ import annotations

from typing import Any

from drld.allocators.base import (
    INITIAL_WINDOW_ITEMS,
    Allocation,
    Allocator,
    InForce,
    bucket,
)
from drld.allocators.start_credit import StartCredit
from drld.estimate.ewma import Ewma
from drld.model import Demand, GlobalView, Quantity

_HISTORY = 0.1
"""Weight of history one second old in the smoothed weight."""


class PapersFlowProportionalShare(Allocator):
    """Fill at the local limit of figure 2."""

    quantity = Quantity.WEIGHT

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        self._smoothed = Ewma(_HISTORY)
        self._local_limit = 0.0
        self._credit = StartCredit()

    def allocate(
        self, demand: Demand, view: GlobalView, limit: InForce, interval_ns: int
    ) -> Allocation:
        """Compute the weight and the local limit: lines 3 to 11 of figure 2."""
        if demand.first or demand.idle:
            self._smoothed.restart()
        weight = self._smoothed.update(self._ideal_weight(demand, view, limit), interval_ns)
        total = weight + view.remote
        # While no limiter has a demand, each begins at its static share.
        self._local_limit = limit.rate * weight / total if total else limit.static_rate
        initial = INITIAL_WINDOW_ITEMS * limit.item
        polices = bucket(self._local_limit, limit.burst, initial)
        enforcement = self._credit.added_to(polices, initial, idle=demand.idle)
        return Allocation(weight, enforcement, self._local_limit)

    def _ideal_weight(self, demand: Demand, view: GlobalView, limit: InForce) -> float:
        """The weight before smoothing: lines 4 to 9 of figure 2."""
        if demand.idle:
            return 0.0
        if not demand.fastest_rate:
            return self._smoothed.value
        if demand.rate >= self._local_limit and not demand.first:
            return self._local_limit / demand.fastest_rate
        if view.remote and demand.rate < limit.rate:
            return demand.rate * view.remote / (limit.rate - demand.rate)
        return demand.rate / demand.fastest_rate
