"""Fair: the flows of the whole fleet get the max-min fair shares of the limit.

One water level f for the fleet, of which every limiter computes its own part, and flow buckets that
make it true. What a limiter tells is its weight, the number of flows at the level that its traffic
is worth; with W the sum of the others' weights and d what a flow wants, f solves

    sum over the own flows of min(d, f) + W f = L              (drld.allocators.water_level)
    w = sum over the own flows of min(d, f) / f
    l = L w / (w + W)                                          the local limit

If all views are equal f is the same everywhere, the sum over all flows of min(d, f) is L, and the l
sum to L. It is the paper's FPS (section 3.2.2, "if flows were max-min fair") with its premise made
true: each sampled flow has a bucket filled at the level of its limiter (drld.allocators.flow_bucket),
so flows above the level are cut and those below it find tokens, whether they respond to drops or not.

**What a flow wants.**

- A flow that was refused or marked in the last `HOLD_NS`, and sends at least `WHOLE` of the level,
  wants all it can get. TCP swings between half and one and a half of its share; a flow that is
  counted by what it sends just then would be given that, and less each time.
- A young flow wants twice what it sent, for slow start doubles.
- All others want `headroom` more than they send, so that noise alone limits none.

Flows outside the sample count like as many of the sampled ones as carry so many bytes: a flow comes
into the sample with a byte drawn at random. Weights are at most what arrived in the last tenth of a
second can use (`reach`): where short flows come and go the averages remember what has gone.

**Rising.** What has risen is not known to all at once. A limiter fills its bucket at most at

    max(RISE L m / S, static share)

with m the least weight that it told in the last D, the fabric's age of news, and S what it believes
all want. So a fleet that wakes up together has the limit, and not the limit each. And an account
bounds what is forwarded in any time, for any traffic (drld.allocators.loan): at most
(1 + margin) L t + B. `margin = 0` is the strict rule. B is the sum over the limiters of

    burst min(sqrt(x), 2 x)      x the strict share: 2 bursts at most in sum
    + 2 D s L, or s burst        s the static share: what it may borrow
    + DEPTH_ITEMS items          or less, where `DEPTH_S` of the static share is less

**Depth.** Flows that share a bucket do not all lose at once, so the depth falls more slowly than the
rate (Appenzeller et al., SIGCOMM 2004): with the root of the share, as long as these sum to two bursts.
A limiter without traffic has the depth of `IDLE_S` of its static share and two packets. What it lacks
of it, or of its account, it asks for like a flow: nothing is given to those who want nothing.

**Weights of limiters.** A flow at a limiter of weight g gets g times the level: min(d, g f) above.

Units: rates bytes/s, weights flows. Invariants: 0 <= w f <= sum of d; 0 <= l <= L; the tokens of the
datapath never exceed the account. docs/allocators.md has what was measured, and what else was tried.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from drld.allocators.base import (
    INITIAL_WINDOW_PACKETS,
    PACKET_BYTES,
    Allocation,
    Allocator,
    InForce,
)
from drld.allocators.loan import LoanAccount
from drld.allocators.water_level import water_level
from drld.model import NS_PER_S, Demand, Enforcement, GlobalView, Quantity

YOUNG_NS = NS_PER_S // 4
"""Age at which slow start is over, at the latest: six doublings at 40 ms."""
HOLD_NS = NS_PER_S // 2
"""How long a refused packet shows that a flow wants more: some round trips, as few flows lose one
in each."""
WHOLE = 0.25
"""Part of the level above which a refused flow wants all it can get: half of TCP's least swing."""
RISE = 2.0
"""Factor by which a local limit may exceed what all have heard of."""
RECENT_NS = NS_PER_S // 10
"""Time constant of what arrived lately."""
REACH_PACKETS = 2
"""Packets in `RECENT_NS` by which a limiter may exceed its reach, or slow flows would not count."""
FLOW_S = 0.25
"""Depth of a flow's bucket, in seconds of its level: a TCP window at the longest common round trip."""
RESERVE = 0.25
"""Part of the bucket that a flow with an empty bucket of its own leaves to others."""
IDLE_S = 0.15
"""Depth of a limiter without traffic, in seconds of its static share: what a fleet that wakes up
together may forward at once, and no more than a sixth of a second's bytes."""
IDLE_ITEMS = 2
"""Packets beside that: one is spent while the next one's tokens come."""
DEPTH_ITEMS = 6
"""Least depth of a limiter with traffic, in packets: TCP's smallest windows, and its probes."""
DEPTH_S = 2.0
"""The same in seconds of the static share, where that is less, as it is at very low rates."""
LOAN_S = 0.25
"""Least time for which a limiter may borrow its static share: with short intervals the news is young,
and TCP's swings are as long as ever."""
REFILL_S = 1.0
"""Time in which a limiter wants back what its bucket or account lacks."""
LEAST_MISSING = 64
"""Bytes below which nothing is asked for: it would be asked for for ever, and less each time."""
_LEAST_FLOW_RATE = 64


@dataclass(frozen=True, slots=True)
class FairParameters:
    """Parameters of `fair`."""

    margin: float = 0.2
    """Part of the limit by which the fleet may exceed it for as long as weights keep changing; 0 is
    the strict rule. Weights of short flows change all the time: docs/allocators.md has the price."""
    headroom: float = 0.1
    """Part of what a flow sends that it wants beyond it."""
    reach: float = 1.5
    """Largest factor by which the weight may exceed what arrived lately."""

    def __post_init__(self) -> None:
        if not 0 <= self.margin <= 1:
            raise ValueError(f"margin: must be from 0 to 1 (got {self.margin})")
        if not 0 < self.headroom <= 1:
            raise ValueError(f"headroom: must be above 0 and at most 1 (got {self.headroom})")
        if self.reach < 1 + self.headroom:
            raise ValueError(f"reach: must be at least 1 + headroom (got {self.reach})")


class Fair(Allocator):
    """Fill at the local limit, and hold every flow to the level."""

    quantity = Quantity.WEIGHT
    Parameters = FairParameters

    def __init__(self, parameters: FairParameters) -> None:
        super().__init__(parameters)
        self.parameters: FairParameters = parameters
        self._level: float | None = None
        self._recent = 0.0
        """Rate of arrival in the last tenth of a second, bytes/s."""
        self._awake_ns = 0
        """Since the last idle time."""
        self._account = LoanAccount()
        self._tokens = math.inf
        """What the datapath's bucket holds, as far as ticks can tell, bytes."""
        self._fill_rate = 0.0
        self._missing = 0.0
        """What that bucket lacks of the depth of a limiter without traffic, bytes."""

    def allocate(
        self, demand: Demand, view: GlobalView, limit: InForce, interval_ns: int
    ) -> Allocation:
        """Compute level, weight and local limit, and what to enforce."""
        if limit.rate <= 0:
            return Allocation(0.0, Enforcement(fill_rate=0, depth=0), 0.0)
        self._awake_ns = 0 if demand.idle else self._awake_ns + interval_ns
        wants, unlimited, copies = self._wants(demand, limit, interval_ns)
        refill = 0.0 if unlimited else self._refill()
        if refill:
            if wants and self._level:
                refill = min(refill, self.parameters.headroom * self._level)
            wants.append(refill / copies)
        # With g the limiter's weight and g f its own level: sum min(d, g f) + (W / g) g f = L.
        others = view.remote / limit.weight
        level = water_level(limit.rate / copies, wants, unlimited + others / copies)
        self._level = level
        want = copies * (unlimited * level + sum(min(want, level) for want in wants))
        want = min(want, self._reach(demand, interval_ns) + refill)
        weight = limit.weight * want / level
        total = weight + view.remote
        local_limit = limit.rate * weight / total if total else limit.static_rate
        enforcement = self._police(demand, view, limit, weight, local_limit, interval_ns)
        if demand.flows > 1 or demand.rest:
            level = water_level(max(enforcement.fill_rate, 1.0) / copies, wants, unlimited)
            enforcement = _with_flow_buckets(enforcement, level)
        return Allocation(weight, enforcement, enforcement.fill_rate)

    def _wants(
        self, demand: Demand, limit: InForce, interval_ns: int
    ) -> tuple[list[float], int, float]:
        """What the sampled flows want, bytes/s; how many want all; and how often they count."""
        level = limit.rate if self._level is None else self._level
        more = 1 + self.parameters.headroom
        young_ns, hold_ns = max(YOUNG_NS, interval_ns), max(HOLD_NS, interval_ns)
        wants: list[float] = []
        unlimited, sampled = 0, 0.0
        for flow in demand.sample:
            sampled += flow.fast
            if flow.age_ns <= young_ns and flow.last:
                wants.append(2 * max(flow.rate, flow.last))
            elif flow.paused:
                continue
            elif flow.unhit_ns < hold_ns and flow.fast >= WHOLE * level:
                unlimited += 1
            else:
                wants.append(more * flow.fast)
        if demand.rest and not sampled:
            wants.append(more * demand.rest)
        return wants, unlimited, 1 + demand.rest / sampled if sampled else 1.0

    def _refill(self) -> float:
        """What the limiter itself wants, to have back what its bucket and its account lack."""
        missing = max(self._missing, self._account.missing)
        return missing / REFILL_S if missing > LEAST_MISSING else 0.0

    def _reach(self, demand: Demand, interval_ns: int) -> float:
        """The largest local limit that is of use to what arrives at present, bytes/s."""
        kept = math.exp(-interval_ns / RECENT_NS)
        self._recent = kept * self._recent + (1 - kept) * demand.instant_rate
        if self._awake_ns <= max(YOUNG_NS, interval_ns):
            return math.inf
        packets = REACH_PACKETS * PACKET_BYTES * NS_PER_S / RECENT_NS
        return self.parameters.reach * self._recent + packets

    def _police(
        self,
        demand: Demand,
        view: GlobalView,
        limit: InForce,
        weight: float,
        local_limit: float,
        interval_ns: int,
    ) -> Enforcement:
        """The limiter's bucket: the local limit, as far as the account lends it."""
        interval_s = interval_ns / NS_PER_S
        static = limit.static_rate / limit.rate
        idle_depth = static * min(2 * limit.burst, IDLE_S * limit.rate) + IDLE_ITEMS * PACKET_BYTES
        least_depth = min(
            max(DEPTH_S * limit.static_rate, PACKET_BYTES), DEPTH_ITEMS * PACKET_BYTES
        )
        fill_rate, strict = local_limit, limit.rate
        if view.connected or view.unnamed:
            # What is told next counts as well: others may use it before this limiter's next tick.
            least = min(view.told, weight)
            told = least / (least + view.remote) if least else 0.0
            fill_rate = min(local_limit, max(RISE * limit.rate * told, limit.static_rate))
            strict = limit.rate * told if weight + view.remote else limit.static_rate
        depth = max(_depth(limit.burst, fill_rate / limit.rate) + PACKET_BYTES, idle_depth)
        if not demand.idle:
            depth = max(depth, least_depth)
        # A limiter on its own is one bucket.
        depth = min(depth, max(limit.burst, IDLE_ITEMS * PACKET_BYTES))
        borrowed = max(2 * view.news_ns / NS_PER_S, LOAN_S) * limit.static_rate
        borrowed = max(borrowed, limit.static_burst)
        self._account.settle(
            demand.forwarded_bytes,
            (1 + self.parameters.margin) * strict,
            _depth(limit.burst, strict / limit.rate)
            + borrowed
            + max(least_depth, IDLE_ITEMS * PACKET_BYTES),
            interval_s,
        )
        depth = self._account.depth(depth, PACKET_BYTES)
        passed = self._fill_rate * interval_s - demand.forwarded_bytes
        self._tokens = min(self._tokens + passed, depth)
        self._missing = max(min(idle_depth, depth) - self._tokens, 0.0)
        # After a late or an extra tick the next one may be further away than the last was.
        longest_s = max(interval_ns, limit.interval_ns) / NS_PER_S
        self._fill_rate = self._account.fill_rate(fill_rate, depth, longest_s)
        return Enforcement(fill_rate=round(self._fill_rate), depth=round(depth))


def _depth(burst: float, share: float) -> float:
    """Depth for a limiter with a share of the limit: those of shares that sum to 1 sum to 2."""
    return burst * min(math.sqrt(share), 2 * share)


def _with_flow_buckets(polices: Enforcement, level: float) -> Enforcement:
    """The same with a bucket for each flow, filled at the level."""
    rate = max(round(level), _LEAST_FLOW_RATE)
    depth = max(round(FLOW_S * rate), INITIAL_WINDOW_PACKETS * PACKET_BYTES)
    reserve = round(RESERVE * (polices.depth or 0))
    return replace(polices, flow_rate=rate, flow_depth=depth, reserve=reserve)
