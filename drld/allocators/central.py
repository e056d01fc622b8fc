"""Central token bucket (CTB): the reference that the others are measured against.

Paper, section 4.3: one limiter, all flows, one bucket filled at the global limit. It is a fleet of
one: it tells its demand as GTB does, and ignores its peers.
"""

from __future__ import annotations

from drld.allocators.base import Allocation, Allocator, InForce, bucket
from drld.model import Demand, GlobalView


class CentralTokenBucket(Allocator):
    """Fill at the global limit."""

    def allocate(
        self, demand: Demand, view: GlobalView, limit: InForce, interval_ns: int
    ) -> Allocation:
        """Fill at the limit in force."""
        return Allocation(demand.rate, bucket(limit.rate, limit.burst), limit.rate)
