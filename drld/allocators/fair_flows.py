"""The buckets of the sampled flows of `fair`, and what holds a crowd of flows instead. Pure.

Each sampled flow has a bucket that is filled at its limiter's level (drld.police.flow_bucket). The
more a flow has used of its own bucket, the more tokens its packets must leave in the limit's
bucket: up to the *reserve*. So the buckets cut flows above the level, and flows below it find
tokens, whether they respond to drops or not.

The reserve is for flows other than the largest, and for flows that begin, which would find no
tokens beside a flow that offers more than the level f. With d the rates that the flows want
(drld.allocators.fair_wants), own the largest min(d, f), others the sum of all other min(d, f), and
excess what the fastest flow offers above f:

    part    = (others + excess) / (own + others + excess)
    reserve = min(RESERVE depth, part depth + the first window of a flow)

So two flows that want more, or a flood of twice the level, leave half of the depth. A large flow
beside trickles leaves little: under one bucket, it would have the whole depth.

Crowds

A flow outside the sample has no bucket of its own. If the limit's bucket refuses most packets, the
order of arrival decides which flows find tokens, and it lasts: *lock-out* (RFC 2309, section 2).
The other flows wait for their timers, and every limiter then counts about as many flows as its
bucket serves in turn. So if a crowd offers A > `CROWD_LOSS` l, its packets are dropped at random
before they reach the bucket, and all flows lose alike:

    p = min(1 - CROWD_PASS l / A, 2 (1 - CROWD_LOSS l / A))

A counts no sampled flow with more than its bucket passes, so that one flood is not a crowd.

Units: rates tokens/s, sizes tokens.
"""

from __future__ import annotations

from drld.allocators.base import INITIAL_WINDOW_ITEMS
from drld.allocators.random_drop import excess_ratio
from drld.model import Demand

FLOW_S = 0.5
"""Depth of a flow's bucket in seconds of its level: TCP's swing at round trips of 300 ms. With a
second, senders on the limited host are more even, and flows that begin beside a flood get less
(tests/sim/test_reserve.py)."""
RESERVE = 0.5
"""Largest part of the limit's bucket that a packet leaves to others. With a quarter, UDP at 20
Mbit/s gets 1.18 of its share beside TCP."""
CROWD_COPIES = 1.25
"""Flows per sampled flow above which the flows are a *crowd*. Flows outside the sample have no
bucket. If only the sampled ones were cut, the sample would carry less and less, and stand for more
and more flows."""
CROWD = 2.0
"""In a crowd, the multiple of the level above which a sampled flow is cut: only outliers are."""
CROWD_RESERVE = 3
"""In a crowd, the packets' worth of tokens that a flow with an empty bucket leaves to others."""
CROWD_LOSS = 1.5
"""In a crowd, what arrives over the fill rate above which packets are dropped at random. At lower
loss, TCP's fast retransmit still works, and flow buckets are fairer."""
CROWD_PASS = 1.1
"""In a crowd, what passes random drop over the fill rate. The bucket refuses the excess, so that
averages that are late lose no rate. As in `fps-random-drop`."""
LEAST_FLOW_RATE = 64
"""Tokens/s: the integers of a flow's bucket hold no token that takes longer."""


def flow_buckets(
    depth: int, level: float, wanted: tuple[float, float], demand: Demand, *, crowd: bool, item: int
) -> tuple[int, int, int]:
    """Rate (tokens/s) and depth of each sampled flow's bucket, and the reserve (both in tokens).

    Args:
        depth: depth of the limit's bucket, tokens.
        level: the rate that no flow may exceed, tokens/s.
        wanted: rate of the flow that wants most and of all others, if none exceeds the level.
        demand: the demand, with its sample.
        crowd: whether the flows are a crowd.
        item: typical item of the limit's unit, tokens.
    """
    own, others = wanted
    first_window = INITIAL_WINDOW_ITEMS * item
    rates = [flow.fast for flow in demand.sample]
    others += max(max(rates, default=0.0) - level, 0.0)
    part = others / (others + own) if others or own else RESERVE
    reserve = min(RESERVE * depth, part * depth + first_window)
    if crowd:
        level = CROWD * max(level, sorted(rates)[len(rates) * 9 // 10])
        reserve = min(reserve, CROWD_RESERVE * item)
    rate = max(round(level), LEAST_FLOW_RATE)
    return rate, max(round(FLOW_S * rate), first_window), round(reserve)


def crowd_drop_probability(
    demand: Demand, flow_rate: int, recent: float, fill_rate: float
) -> float:
    """Part of a crowd's packets that are dropped before they reach the bucket.

    Args:
        demand: the demand, with its sample.
        flow_rate: fill rate of a sampled flow's bucket, tokens/s.
        recent: rate of arrival in the last quarter of a second, tokens/s.
        fill_rate: that of the limit's bucket, tokens/s.
    """
    offered = demand.rest + sum(min(flow.fast, flow_rate) for flow in demand.sample)
    # A crowd that leaves is not remembered for half a second.
    offered = min(offered, recent)
    return min(
        excess_ratio(offered, CROWD_PASS * fill_rate),
        2 * excess_ratio(offered, CROWD_LOSS * fill_rate),
    )
