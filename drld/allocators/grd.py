"""Global random drop (GRD; paper, section 3.2.1 and figure 1).

Each limiter drops each packet with the same probability, the excess of the global demand over the
limit L in the last interval:

    D = r_i + sum over j != i of r_j
    p = (D - L) / D  where D > L, else 0

so l_i = L * r_i / D passes here: this limiter's part of the bytes that a central bucket passes.

Two parameters bound the bytes that pass while p is wrong (drld.allocators.random_drop): `lead`,
which peers see in the demand as well, and `guard`. The paper has neither, and without them (`lead =
0`, `guard = false`) this is the paper's GRD. With the static share s_i the guard is

    part      = max(r_i / D, s_i)
    fill_rate = 1.05 * L * part
    depth     = burst * sqrt(part), at least an initial window

Invariants: part <= 1. If a fleet agrees on D, the parts sum to at most 2. So at most 2.1 L passes,
however old p is, and 1.05 L if demands are in proportion to the static shares.
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
from drld.model import Demand, Enforcement, GlobalView

_GUARD_MARGIN = 0.05


@dataclass(frozen=True, slots=True)
class GrdParameters:
    """Parameters of `grd`.

    With the defaults, no second's bytes exceed 1.1 of the limit and the burst by more than a
    hundredth, not even when daemons die (docs/conservative-rule.md). The paper's GRD is
    `{ name = "grd", lead = 0.0, guard = false }`.
    """

    lead: Annotated[float, "from 0 to 1"] = LEAD
    """Weight of the last interval's rate in the demand: it damps swings under TCP."""
    guard: bool = True
    """Whether a bucket, filled at 1.05 of this limiter's part, bounds the bytes that pass."""

    def __post_init__(self) -> None:
        require(self, "lead", 0 <= self.lead <= 1)


class GlobalRandomDrop(Allocator):
    """Drop the global excess at random."""

    Parameters = GrdParameters

    def __init__(self, parameters: GrdParameters) -> None:
        super().__init__(parameters)
        self.parameters: GrdParameters = parameters

    def allocate(
        self, demand: Demand, view: GlobalView, limit: InForce, interval_ns: int
    ) -> Allocation:
        """Set the drop probability from the global demand."""
        local = leading(demand, self.parameters.lead)
        total = local + view.remote
        enforcement = Enforcement(drop_probability=excess_ratio(total, limit.rate))
        if self.parameters.guard:
            static = limit.static_rate / limit.rate if limit.rate else 0.0
            part = max(local / total if total else 0.0, static)
            initial = INITIAL_WINDOW_ITEMS * limit.item
            polices = bucket(limit.rate * part, limit.burst * math.sqrt(part), initial)
            enforcement = guarded(enforcement.drop_probability, polices, _GUARD_MARGIN)
        return Allocation(local, enforcement, None)
