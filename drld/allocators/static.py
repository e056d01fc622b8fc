"""Static split: each limiter polices its configured share of rate and depth.

Paper, section 5.7 and figure 9(a): the base case, which cannot lend an idle limiter's share to a
busy one. The shares sum to one, so the fleet never forwards more than the limit, whatever its
limiters know of each other.
"""

from __future__ import annotations

from drld.allocators.base import Allocation, Allocator, InForce, bucket
from drld.model import Demand, GlobalView


class Static(Allocator):
    """Fill at this limiter's share."""

    follows_demand = False

    def allocate(
        self, demand: Demand, view: GlobalView, limit: InForce, interval_ns: int
    ) -> Allocation:
        """Fill at the static share."""
        return Allocation(
            demand.rate, bucket(limit.static_rate, limit.static_burst), limit.static_rate
        )
