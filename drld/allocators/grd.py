"""Global random drop (GRD; paper, section 3.2.1 and figure 1).

Each limiter drops each packet with the same probability, the excess of the global demand over the
limit L in the last interval:

    D = r_i + sum over j != i of r_j
    p = (D - L) / D  where D > L, else 0

so the expected number of drops is a central bucket's, without its bursts. The paper has no bucket:
nothing bounds a short burst, nor what a limiter whose daemon has died forwards until its datapath
falls back: p stays what it was, which may be 0.

Two parameters bound both (docs/conservative-rule.md has what comes of them); the paper has neither,
and without them (`lead = 0`, `guard = false`) this is the paper's GRD.

`lead`. The demand filter (0.43 s at `ewma` = 0.1), a round trip and the gossip's delay together
turn p by nearly half a period against what TCP's congestion avoidance makes of it, at some 7 rad/s
where the loop's gain is still 1: the forwarded rate swings, by a fifth of L with ten flows. What
damps such a loop is lead: the demand that counts, here and at the others, is

    r_i = (1 - lead) * filtered + lead * that of the last interval

so that evidence of change passes the filter in part. The mean stays, so the aggregate does.

`guard`. A bucket beside the drop probability that conforming traffic does not meet: a central
bucket, where D > L, passes L * r_i / D of what is here, so this much and a margin is the fill rate;
and no less than that of the static share s_i, for flows that begin where little was wanted.

    part = max(r_i / D, s_i)
    fill_rate = 1.05 * L * part,  depth = burst * sqrt(part)

Invariant: part <= 1, and over a fleet that agrees on D the parts sum to 2 at most, so that whatever
p is, however old, no more than 2.1 L passes; 1.05 L where demands are as the static shares.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from drld.allocators.base import Allocation, Allocator, InForce, bucket
from drld.model import Demand, Enforcement, GlobalView

GUARD_MARGIN = 1.05
"""Fill rate of the guard over the part of the limit that it guards: p alone decides below."""
GUARD_FLOOR_BYTES = 12 * 1500
"""Smallest depth of the guard: a new flow's SYN and initial window (RFC 6928) must pass."""


@dataclass(frozen=True, slots=True)
class GrdParameters:
    """Parameters of GRD."""

    lead: float = 0.2
    """Part of the demand that is the last interval's, unfiltered."""
    guard: bool = True
    """Whether a bucket bounds what the drop probability lets through."""

    def __post_init__(self) -> None:
        if not 0 <= self.lead <= 1:
            raise ValueError(f"lead: {self.lead} is not in [0, 1]")


def excess_ratio(demand: float, limit: float) -> float:
    """Fraction of `demand` above `limit` (figure 1, line 4), 0 to 1."""
    return (demand - limit) / demand if demand > limit else 0.0


class GlobalRandomDrop(Allocator):
    """Drop the global excess at random."""

    Parameters = GrdParameters

    def __init__(self, parameters: GrdParameters) -> None:
        super().__init__(parameters)
        self.parameters: GrdParameters = parameters

    def allocate(
        self,
        demand: Demand,
        view: GlobalView,
        limit: InForce,
        interval_ns: int,
    ) -> Allocation:
        """Set the drop probability from the global demand."""
        local = demand.rate + self.parameters.lead * (demand.instant_rate - demand.rate)
        total = local + view.remote
        enforcement = Enforcement()
        if self.parameters.guard:
            part = max(
                local / total if total else 0.0,
                limit.static_rate / limit.rate if limit.rate else 0.0,
            )
            fill_rate = GUARD_MARGIN * limit.rate * part
            enforcement = bucket(fill_rate, limit.burst * math.sqrt(part), GUARD_FLOOR_BYTES)
        probability = excess_ratio(total, limit.rate)
        return Allocation(local, replace(enforcement, drop_probability=probability), None)
