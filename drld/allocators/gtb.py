"""Global token bucket (GTB; paper, section 3.2).

Each limiter emulates the one central bucket: it fills at the global limit L and drains for what
the other limiters are expected to forward, their reported demand r_j, until the next update:

    fill_rate = L - sum over j != i of r_j          [tokens/s, negative when others exceed L]
    depth     = the whole depth

Local packets take their tokens as they come. Invariant: tokens stay within [0, depth], so stale
news drains at most the depth. Demand is what arrives, not what passes. So a limiter gets nothing
while the demand of its peers alone exceeds L. If that holds at all limiters, and traffic does not
respond to drops, the fleet forwards nothing. The paper finds (sections 3.2 and 5.1), and our
figures show, that the split is fair only with the shortest interval and without a filter. It is
here as the paper's baseline; docs/conservative-rule.md has its failures.
"""

from __future__ import annotations

from drld.allocators.base import Allocation, Allocator, InForce, bucket
from drld.model import Demand, GlobalView


class GlobalTokenBucket(Allocator):
    """Fill at the limit less the demand of the peers."""

    def allocate(
        self, demand: Demand, view: GlobalView, limit: InForce, interval_ns: int
    ) -> Allocation:
        """Fill at the limit in force less the remote demand."""
        fill_rate = limit.rate - view.remote
        return Allocation(demand.rate, bucket(fill_rate, limit.burst), max(fill_rate, 0.0))
