"""Global random drop (GRD; paper, section 3.2.1 and figure 1).

Each limiter drops each packet with the same probability, the excess of the global demand over the
limit L in the last interval:

    D = r_i + sum over j != i of r_j
    p = (D - L) / D  where D > L, else 0

so the expected number of drops is a central bucket's, without its bursts. There is no bucket:
nothing bounds a short burst.
"""

from __future__ import annotations

from drld.allocators.base import Allocation, Allocator, InForce
from drld.model import Demand, Enforcement, GlobalView


def excess_ratio(demand: float, limit: float) -> float:
    """Fraction of `demand` above `limit` (figure 1, line 4), 0 to 1."""
    return (demand - limit) / demand if demand > limit else 0.0


class GlobalRandomDrop(Allocator):
    """Drop the global excess at random."""

    def allocate(
        self,
        demand: Demand,
        view: GlobalView,
        limit: InForce,
        interval_ns: int,
    ) -> Allocation:
        """Set the drop probability from the global demand."""
        probability = excess_ratio(demand.rate + view.remote, limit.rate)
        return Allocation(demand.rate, Enforcement(drop_probability=probability), None)
