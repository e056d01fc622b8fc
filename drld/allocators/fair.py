"""Fair: the flows of the whole fleet get the max-min fair shares of the limit.

The fleet has one water level f. Every limiter computes the level from its own flows and from one
number of its peers, and holds its flows to it. A limiter tells its peers its weight: the number of
flows at the level that its traffic is worth. L is the limit, W the sum of the peers' weights, and d
the rate that a flow wants:

    sum over the own flows of min(d, f) + W f = L              (drld.allocators.water_level)
    w = sum over the own flows of min(d, f) / f                the weight
    l = L w / (w + W)                                          the local limit

If all views are equal, f is the same everywhere, and the sum over all flows of min(d, f) is L.
This is the paper's FPS (section 3.2.2: "if flows were max-min fair") with its premise made true.
Each sampled flow has a bucket that is filled at its limiter's level
(drld.police.flow_bucket). So the bucket cuts flows above the level, and flows below it find
tokens, whether they respond to drops or not.

The rate that a flow wants

- A flow whose packets were refused or marked lately wants all it can get, if it sends at least
  `WHOLE` of the level. TCP swings between half and one and a half of its share. If such a flow
  counted as its present rate, it would be given that rate, and less each time.
- A flow that began in the last interval wants twice what it sent, since it was seen for half of
  the interval on average.
- Any other flow wants `headroom` more than it sends, so that noise alone limits no flow.

Flows outside the sample count like as many sampled ones as carry their bytes. Together, the flows
want at most what the arrivals of the last tenth of a second can use (`reach`). Without this bound,
averages would still count short flows that have ended. If it binds, it takes the place of the sum
in the equation for f: the level rises, and w is as much less. At the level of the sum, w would be
worth a larger local limit than the bound.

The rate that a limiter may use at once

Peers learn only after a while that a weight has risen. So the bucket is filled at no more than

    max(RISE L m / (m + W), static share)

where m is the least weight that this limiter told in the last D, the age of news. If a whole fleet
wakes up, the fleet then has the limit together, instead of each limiter having all of it. An
account bounds the bytes of any traffic (drld.allocators.loan): in a time t the fleet forwards at
most (1 + margin) L t + B. `margin = 0` is the strict rule. B is the sum, over the limiters, of

    burst min(sqrt(x), 2 x)       x the strict share; 2 bursts in sum at most
    + max(2 D, LOAN_S) s L        s the static share; at least s times the burst
    + DEPTH_ITEMS packets         or DEPTH_S of the static share, but at least IDLE_ITEMS packets

and of (1 + margin) L times an interval, since the account is cut at ticks only. With super-packets
(GSO) one of these is added for each limiter.

Depth

Flows that share a bucket do not all lose packets at once. So the depth falls with the square root
of the rate (Appenzeller et al., "Sizing router buffers", SIGCOMM 2004), as long as the depths sum
to two bursts. An idle limiter has a depth of `IDLE_S` of its static share, and `IDLE_ITEMS` packets
more. A limiter with a trickle has no more, or a fleet that wakes up after keepalives would have
`DEPTH_ITEMS` packets each. A limiter whose traffic came in bursts lately has a depth of the largest
one, up to a whole burst (drld.allocators.burst_need). A limiter claims the tokens that its bucket
lacks of these depths, or its account, as a flow claims its rate. So tokens go only to limiters that
want them.

Crowds

A flow outside the sample has no bucket of its own. If the limit's bucket refuses most packets, the
order of arrival decides which flows find tokens, and it lasts: *lock-out* (RFC 2309, section 2).
The other flows wait for their timers, and every limiter then counts about as many flows as its
bucket serves in turn. So if a crowd offers A > `CROWD_LOSS` l, its packets are dropped at random
before they reach the bucket, and all flows lose alike:

    p = min(1 - CROWD_PASS l / A, 2 (1 - CROWD_LOSS l / A))

A counts no sampled flow with more than its bucket passes, so that one flood is not a crowd.

A limiter with the configured weight g gives its flows g times the level: min(d, g f) above.

Units: rates bytes/s, weights flows. Invariants: 0 <= l <= L; w f is at most what the flows want;
the tokens of the bucket never exceed the account. docs/allocators.md has the measurements.
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
    require,
)
from drld.allocators.burst_need import BurstNeed
from drld.allocators.loan import LoanAccount
from drld.allocators.random_drop import excess_ratio
from drld.allocators.water_level import water_level
from drld.model import NS_PER_S, Demand, Enforcement, GlobalView, Quantity

AWAKE_NS = NS_PER_S // 4
"""Time after which recent arrivals bound the weight of a limiter that was idle. Slow start is over
then: six doublings at a round trip of 40 ms."""
HOLD_NS = NS_PER_S // 2
"""Time for which a refused packet shows that its flow wants more: several round trips, since few
flows lose a packet in each."""
WHOLE = 0.25
"""Part of the level above which a refused flow wants all it can get: half of TCP's lowest swing."""
RISE = 2.0
"""Factor by which a limiter may exceed its strict share. With 1, a flow that joins a busy limiter
has its share after 0.4 s; with 2, at once."""
RECENT_NS = NS_PER_S // 10
"""Time constant of the recent arrival rate."""
REACH_ITEMS = 2
"""Least packets in `RECENT_NS` by which the reach exceeds the arrivals: packets of a slow flow come
one by one."""
FLOW_S = 0.5
"""Depth of a flow's bucket in seconds of its level: TCP's swing at round trips of 300 ms."""
RESERVE = 0.5
"""Part of the limit's bucket that a packet leaves to others if its flow's bucket is empty. With
a quarter, UDP at 20 Mbit/s gets 1.18 of its share beside TCP."""
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
IDLE_S = 0.15
"""Depth of an idle limiter in seconds of its static share. A fleet that wakes up together
forwards no more than that at once."""
IDLE_ITEMS = 2
"""Packets that are added to `IDLE_S`: one is spent while tokens for the next one come."""
TRICKLE_S = 1.0
"""Traffic of at most `IDLE_ITEMS` packets in this time is a trickle: the depth of an idle limiter
passes all of it. Within this time without a byte, a limiter falls idle."""
DEPTH_ITEMS = 6
"""Least depth of a limiter with traffic, in packets: TCP's smallest windows and its probes."""
DEPTH_S = 2.0
"""The same limiter's least depth in seconds of its static share, where that is less than
`DEPTH_ITEMS`: at very low rates."""
LOAN_S = 0.25
"""Least loan of a limiter in seconds of its static share. Short intervals make news younger, but
they do not shorten TCP's swings."""
REFILL_S = 1.0
"""Time in which a limiter wants back the bytes that an idle bucket or its account lacks."""
BURST_S = 0.5
"""Time in which it wants back those that a burst needs: their claim lasts as long as that of the
burst itself, which a flow's average spreads over this time (`FAST_NS`)."""
LEAST_MISSING = 64
"""Missing bytes below which a limiter claims none: each claim would be smaller than the last."""
LEAST_FLOW_RATE = 64
"""Tokens/s: the integers of a flow's bucket hold no token that takes longer."""


@dataclass(frozen=True, slots=True)
class FairParameters:
    """Parameters of `fair`."""

    margin: Annotated[float, "from 0 to 1"] = 0.2
    """Part of the limit by which the fleet may exceed it while weights keep changing; 0 is the
    strict rule (docs/allocators.md)."""
    headroom: Annotated[float, "above 0 and at most 1"] = 0.1
    """Part of its own rate that a flow wants in addition to it."""
    reach: Annotated[float, "at least 1 + headroom"] = 1.5
    """Largest factor by which the weight may exceed the arrivals of the last tenth of a second."""

    def __post_init__(self) -> None:
        require(self, "margin", 0 <= self.margin <= 1)
        require(self, "headroom", 0 < self.headroom <= 1)
        require(self, "reach", self.reach >= 1 + self.headroom)


class Fair(Allocator):
    """Fill the limit's bucket at the local limit, and hold each sampled flow to the level."""

    quantity = Quantity.WEIGHT
    Parameters = FairParameters

    def __init__(self, parameters: FairParameters) -> None:
        super().__init__(parameters)
        self.parameters: FairParameters = parameters
        self._level: float | None = None
        self._recent = 0.0
        """Rate of arrival in the last tenth of a second, bytes/s."""
        self._awake_ns = 0
        """Time since the limiter was last idle, ns."""
        self._account = LoanAccount()
        self._need = BurstNeed()
        self._tokens = math.inf
        """Tokens of the datapath's bucket, as far as ticks can tell, bytes."""
        self._fill_rate = 0.0
        self._missing = 0.0
        """Tokens that this bucket lacks of an idle limiter's depth, bytes."""
        self._burst_missing = 0.0
        """Tokens that it lacks for the largest burst that a full account would pay for, bytes."""
        self._owed = 0.0
        """Bytes that the account lacks of what this limiter may claim."""

    @property
    def settled(self) -> bool:
        """See `Allocator`: an idle limiter's bucket is shallow once no burst is remembered, and its
        account is full after a while."""
        return not self._need.peak and self._account.missing <= LEAST_MISSING

    def allocate(
        self, demand: Demand, view: GlobalView, limit: InForce, interval_ns: int
    ) -> Allocation:
        """Compute the level, the weight, the local limit and the record to enforce."""
        if limit.rate <= 0:
            return Allocation(0.0, Enforcement(fill_rate=0, depth=0), 0.0)
        self._awake_ns = 0 if demand.idle else self._awake_ns + interval_ns
        wants, unlimited, copies = self._wants(demand, limit, interval_ns)
        refill = 0.0 if unlimited else self._refill()
        if refill:
            if wants and self._level:
                refill = min(refill, self.parameters.headroom * self._level)
            wants.append(refill / copies)
        # g is the limiter's weight, g f its own level: sum min(d, g f) + (W / g) g f = L.
        others = view.remote / limit.weight
        level = water_level(limit.rate / copies, wants, unlimited + others / copies)
        wanted = copies * (unlimited * level + sum(min(want, level) for want in wants))
        used = min(wanted, self._reach(demand, limit.item, interval_ns) + refill)
        if used < wanted:
            level = min((limit.rate - used) / others, limit.rate) if others else limit.rate
        self._level = level
        weight = limit.weight * used / level
        total = weight + view.remote
        local_limit = limit.rate * weight / total if total else limit.static_rate
        rates = self._rates(view, limit, weight, local_limit)
        depth = round(self._police(demand, limit, rates, view.news_ns, interval_ns, idle=not total))
        flow_rate = flow_depth = reserve = 0
        drop_probability = 0.0
        if demand.flows > 1 or demand.rest:
            # The fill rate in force may be below the local limit.
            level = water_level(max(self._fill_rate, 1.0) / copies, wants, unlimited)
            flow_rate, flow_depth, reserve = _flow_buckets(depth, level, demand, copies, limit.item)
            if copies > CROWD_COPIES:
                drop_probability = self._drop_probability(demand, flow_rate)
        enforcement = Enforcement(
            drop_probability=drop_probability,
            fill_rate=round(self._fill_rate),
            depth=depth,
            flow_rate=flow_rate,
            flow_depth=flow_depth,
            reserve=reserve,
        )
        return Allocation(weight, enforcement, self._fill_rate)

    def _wants(
        self, demand: Demand, limit: InForce, interval_ns: int
    ) -> tuple[list[float], int, float]:
        """Rates that flows want, bytes/s; number of flows that want all; flows per sampled flow."""
        level = limit.rate if self._level is None else self._level
        more = 1 + self.parameters.headroom
        hold_ns = max(HOLD_NS, interval_ns)
        wants: list[float] = []
        unlimited = 0
        sampled = sum(flow.fast for flow in demand.sample)
        copies = 1 + demand.rest / sampled if sampled else 1.0
        crowd = copies > CROWD_COPIES
        for flow in demand.sample:
            if not crowd and flow.age_ns <= interval_ns:
                wants.append(2 * flow.last)
            elif flow.paused:
                continue
            elif flow.unhit_ns < hold_ns and flow.fast >= WHOLE * level:
                unlimited += 1
            else:
                wants.append(more * flow.fast)
        if demand.rest and not sampled:
            wants.append(more * demand.rest)
        return wants, unlimited, copies

    def _drop_probability(self, demand: Demand, flow_rate: int) -> float:
        """Part of a crowd's packets that are dropped before they reach the bucket."""
        offered = demand.rest + sum(min(flow.fast, flow_rate) for flow in demand.sample)
        # A crowd that leaves is not remembered for half a second.
        offered = min(offered, self._recent)
        return min(
            excess_ratio(offered, CROWD_PASS * self._fill_rate),
            2 * excess_ratio(offered, CROWD_LOSS * self._fill_rate),
        )

    def _refill(self) -> float:
        """Rate that the limiter wants, to refill its bucket and its account, bytes/s."""
        claims = (max(self._missing, self._owed), REFILL_S), (self._burst_missing, BURST_S)
        return max(
            missing / time_s if missing > LEAST_MISSING else 0.0 for missing, time_s in claims
        )

    def _reach(self, demand: Demand, item: int, interval_ns: int) -> float:
        """The largest local limit that the present arrivals can use, tokens/s."""
        kept = math.exp(-interval_ns / RECENT_NS)
        self._recent = kept * self._recent + (1 - kept) * demand.instant_rate
        if self._awake_ns <= max(AWAKE_NS, interval_ns):
            return math.inf
        items = REACH_ITEMS * item * NS_PER_S / RECENT_NS
        return max(self.parameters.reach * self._recent, self._recent + items)

    @staticmethod
    def _rates(
        view: GlobalView, limit: InForce, weight: float, local_limit: float
    ) -> tuple[float, float]:
        """Fill rate that peers can know of, and the strict share, both bytes/s."""
        if not (view.connected or view.unnamed):
            return local_limit, limit.rate
        # The next weight counts as told: peers may use it before this limiter's next tick.
        least = min(view.told, weight)
        strict = limit.rate * least / (least + view.remote) if least else 0.0
        fill_rate = min(local_limit, max(RISE * strict, limit.static_rate))
        # While no limiter has a demand, each has its static share.
        return fill_rate, strict if weight + view.remote else limit.static_rate

    def _police(
        self,
        demand: Demand,
        limit: InForce,
        rates: tuple[float, float],
        news_ns: int,
        interval_ns: int,
        *,
        idle: bool,
    ) -> float:
        """Set the fill rate, within the bounds of the account; return the depth, bytes.

        `idle` says that no limiter has a demand.
        """
        fill_rate, strict = rates
        interval_s = interval_ns / NS_PER_S
        static = limit.static_rate / limit.rate
        idle_bytes = IDLE_ITEMS * limit.item
        idle_depth = static * min(2 * limit.burst, IDLE_S * limit.rate) + idle_bytes
        least_depth = max(DEPTH_S * limit.static_rate, limit.item)
        least_depth = min(least_depth, DEPTH_ITEMS * limit.item)
        depth = max(_depth(limit.burst, fill_rate / limit.rate) + limit.item, idle_depth)
        if TRICKLE_S * _arriving(demand) > idle_bytes:
            depth = max(depth, least_depth)
        # One limiter alone needs no more than the limit's burst.
        depth = min(depth, max(limit.burst, idle_bytes))
        loan = max(2 * news_ns / NS_PER_S, LOAN_S) * limit.static_rate
        capacity = max(loan, limit.static_burst) + max(least_depth, idle_bytes)
        burst = _depth(limit.burst, strict / limit.rate)
        self._account.settle(
            demand.forwarded_bytes,
            (1 + self.parameters.margin) * strict,
            capacity + burst,
            interval_s,
        )
        # What only an idle fleet allows is not claimed. The claim itself would take it away, so the
        # fleet would never come to rest. The static share fills it.
        self._owed = max(self._account.missing - burst * idle, 0.0)
        # After a late or an extra tick, the next interval may be longer than the last.
        longest_s = max(interval_ns, limit.interval_ns) / NS_PER_S
        filled = self._fill_rate * interval_s
        arrived = demand.instant_rate * interval_s
        need = min(self._need.update(arrived, filled, interval_ns), limit.burst)
        # The fill rate comes first: what a bucket holds, the account cannot pay for a rate.
        paid = min(need, self._account.spare(fill_rate, longest_s))
        depth = self._account.depth(max(depth, paid), limit.item)
        # A datapath that went on without its daemon has not forwarded what it did not have.
        self._tokens = min(max(self._tokens + filled - demand.forwarded_bytes, 0.0), depth)
        self._missing = max(min(idle_depth, depth) - self._tokens, 0.0)
        self._burst_missing = max(min(need, self._account.capacity) - self._tokens, 0.0)
        self._fill_rate = self._account.fill_rate(fill_rate, depth, longest_s)
        return depth


def _arriving(demand: Demand) -> float:
    """Rate of arrival in the last half second, bytes/s."""
    return demand.rest + sum(flow.fast for flow in demand.sample)


def _depth(burst: float, share: float) -> float:
    """Depth for a share of the limit, bytes. Shares that sum to 1 have at most two bursts."""
    return burst * min(math.sqrt(share), 2 * share)


def _flow_buckets(
    depth: int, level: float, demand: Demand, copies: float, item: int
) -> tuple[int, int, int]:
    """Rate (bytes/s) and depth of each sampled flow's bucket, and the reserve (both bytes).

    Args:
        depth: depth of the limit's bucket, bytes.
        level: the rate that no flow may exceed, bytes/s.
        demand: the demand, with its sample.
        copies: flows per sampled flow.
        item: typical item of the limit's unit, tokens.
    """
    reserve = RESERVE * depth
    if copies > CROWD_COPIES:
        rates = sorted(flow.fast for flow in demand.sample)
        level = CROWD * max(level, rates[len(rates) * 9 // 10])
        reserve = min(reserve, CROWD_RESERVE * item)
    rate = max(round(level), LEAST_FLOW_RATE)
    return rate, max(round(FLOW_S * rate), INITIAL_WINDOW_ITEMS * item), round(reserve)
