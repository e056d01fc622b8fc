"""Global random drop (GRD; paper, section 3.2.1 and figure 1).

Each limiter drops each packet with the same probability, the excess of the global demand over the
limit L in the last interval:

    D = r_i + sum over j != i of r_j
    p = (D - L) / D  where D > L, else 0

so what passes here is l_i = L * r_i / D: this limiter's part of what a central bucket would pass.

Two parameters bound what passes while p is wrong (drld.allocators.random_drop): `lead`, which the
demand that is told to the others has as well, and `guard`. The paper has neither, and without them
(`lead = 0`, `guard = false`) this is the paper's GRD. With the static share s_i the guard is

    part      = max(r_i / D, s_i)
    fill_rate = 1.05 * L * part
    depth     = burst * sqrt(part), at least an initial window

Invariant: part <= 1, and over a fleet that agrees on D the parts sum to 2 at most, so that whatever
p is, however old, no more than 2.1 L passes; 1.05 L where demands are as the static shares.
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
    """Part of the demand that is the last interval's, unfiltered: it damps swings under TCP."""
    guard: bool = True
    """Whether a bucket at 1.05 of this limiter's part of the demand bounds what passes."""

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
