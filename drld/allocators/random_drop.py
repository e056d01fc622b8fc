"""Random drop with a lead and a guard: for GRD and for FPS with random drop.

A limiter that may forward l of the r that it is offered drops each packet with the probability

    p = (r - l) / r  if r > l, else 0                       (paper, section 3.2.1, figure 1, line 4)

So the expected number of drops is a bucket's, without its bursts. While p is wrong, nothing bounds
what passes. drld adds two things (effects: docs/conservative-rule.md):

Lead. The demand filter, the round trip and gossip delay p by nearly half a period of TCP's
congestion avoidance, at some 7 rad/s, where the loop's gain is still 1. So the forwarded rate
swings, by a fifth of the limit with ten flows. The lead damps the loop, because a part of each
change passes the filter at once. The mean stays the same, and so does the aggregate.

    r = (1 - lead) * filtered rate + lead * rate of the last interval

Guard. A bucket beside p, filled by a margin faster than l. So p decides, and traffic that p has
brought down to l rarely finds the bucket empty. A dead limiter's datapath keeps its last p, which
may be 0, until it falls back; it keeps its bucket as well. Invariant: if the l of a fleet sum to at
most the limit L, at most (1 + margin) L t and the depths pass in any time t, whatever the p are.
"""

from __future__ import annotations

from dataclasses import replace

from drld.model import Demand, Enforcement

LEAD = 0.2
"""Weight of the last interval's rate in the demand."""


def leading(demand: Demand, lead: float) -> float:
    """The demand with this lead, tokens/s."""
    return demand.rate + lead * (demand.instant_rate - demand.rate)


def excess_ratio(demand: float, limit: float) -> float:
    """Fraction of `demand` above `limit` (figure 1, line 4), 0 to 1."""
    return (demand - limit) / demand if demand > limit else 0.0


def guarded(drop_probability: float, polices: Enforcement, margin: float) -> Enforcement:
    """Drop at random; the bucket `polices`, filled faster by `margin`, bounds what passes."""
    fill_rate = round((1 + margin) * polices.fill_rate)
    return replace(polices, drop_probability=drop_probability, fill_rate=fill_rate)
