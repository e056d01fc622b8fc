"""The limit's bucket at a limiter with `fair`: its fill rate, its depth and its account.

    L               the limit
    s               the static share of this limiter
    D               the age of news: the longest time until all peers know a new weight
    w, m            the weight of this limiter; the least that it told in the last D
    W, V            the sum of its peers' weights as it believes it; the least of the last D
    x = m / (m + W) the *strict share*; those of a fleet sum to 1 at most

Fill rate

The local limit is L w / (w + W). But peers learn only after a while that a weight has risen, and
do not make room before. So a fill rate exceeds the strict share by no more than the factor `rise`:

    fill rate = L min(w / (w + W), max(rise x, s))
    rise      = max(1, RISE min(1, SWING (m + V) / (m + W)))

A limiter that grows alone has its share at once. If a whole fleet wakes up, m and V are small, and
the limiters share the limit instead of having all of it each.

Account

An account bounds the tokens of any traffic (drld.allocators.loan). In a time t the fleet forwards
at most (1 + margin) L t + B; `margin = 0` is the strict rule. B is the sum, over the limiters, of

    burst min(sqrt(x), 2 x)       2 bursts in sum at most
    + max(2 D, LOAN_S) s L        at least s times the burst
    + DEPTH_ITEMS packets         or DEPTH_S of the static share, but at least IDLE_ITEMS packets

and of (1 + margin) L times an interval, since the account is cut at ticks only. With super-packets
(GSO) one of these is added for each limiter.

Depth

Flows that share a bucket do not all lose packets at once. So the depth falls with the square root
of the rate (Appenzeller et al., "Sizing router buffers", SIGCOMM 2004), as long as the depths sum
to two bursts. Three kinds of limiters have other depths:

- idle, or with a trickle: `IDLE_S` of its static share and `IDLE_ITEMS` packets. Otherwise a fleet
  that wakes up after keepalives would have `DEPTH_ITEMS` packets at each limiter;
- with other traffic: at least `DEPTH_ITEMS` packets;
- with bursts lately: its largest burst, up to that of the limit (drld.allocators.burst_need).

A limiter claims the tokens that its bucket lacks of an idle limiter's depth or of its burst, and
those that its account lacks, as a flow claims its rate. So tokens go only to limiters that want
them.

Units: rates tokens/s, sizes tokens, weights flows. Invariant: the tokens of the bucket never exceed
the account.
"""

from __future__ import annotations

import math

from drld.allocators.base import InForce
from drld.allocators.burst_need import BurstNeed
from drld.allocators.fair_wants import WHOLE
from drld.allocators.loan import LoanAccount
from drld.model import NS_PER_S, Demand, GlobalView

RISE = 2.0
"""Factor by which a limiter may exceed its strict share. With 1, a flow that joins a busy limiter
has its share after 0.4 s; with 2, at once."""
SWING = 1 / WHOLE
"""Factor by which the fleet's weights may grow within the age of news before `RISE` falls. The
weight of a single flow swings by as much, when its packets are refused."""
IDLE_S = 0.15
"""Depth of an idle limiter in seconds of its static share. A fleet that wakes up together
forwards no more than that at once."""
IDLE_ITEMS = 2
"""Packets that are added to `IDLE_S`: one is spent while tokens for the next one come."""
TRICKLE_S = 1.0
"""Traffic of at most `IDLE_ITEMS` packets in this time is a trickle: the depth of an idle limiter
passes all of it. Within this time without a token, a limiter falls idle."""
DEPTH_ITEMS = 6
"""Least depth of a limiter with traffic, in packets: TCP's smallest windows and its probes."""
DEPTH_S = 2.0
"""Least depth of such a limiter at very low rates, in seconds of its static share: it counts where
it is less than `DEPTH_ITEMS`."""
LOAN_S = 0.25
"""Least loan of a limiter in seconds of its static share. Short intervals make news younger, but
they do not shorten TCP's swings."""
REFILL_S = 1.0
"""Time in which a limiter wants back the tokens that an idle bucket or its account lacks."""
BURST_S = 0.5
"""Time in which it wants back those that a burst needs: their claim lasts as long as that of the
burst itself, which a flow's average spreads over this time (`FAST_NS`)."""
LEAST_MISSING = 64
"""Missing tokens below which a limiter claims none: each claim would be smaller than the last."""


class FairBucket:
    """The fill rate and the depth of one limit's bucket at one limiter."""

    def __init__(self, margin: float) -> None:
        """`margin`: part of the limit by which the account's income exceeds the strict share."""
        self.fill_rate = 0.0
        """The fill rate in force, tokens/s."""
        self.account = LoanAccount()
        self._margin = margin
        self._need = BurstNeed()
        self._tokens = math.inf
        """Tokens of the datapath's bucket, as far as ticks can tell."""
        self._missing = 0.0
        """Tokens that this bucket lacks of an idle limiter's depth."""
        self._burst_missing = 0.0
        """Tokens that it lacks for the largest burst that a full account would pay for."""
        self._owed = 0.0
        """Tokens that the account lacks of what this limiter may claim."""

    @property
    def settled(self) -> bool:
        """Whether nothing changes while the limiter is idle: no burst is remembered that makes its
        bucket deep, and its account is full."""
        return not self._need.peak and self.account.missing <= LEAST_MISSING

    @property
    def wanted_rate(self) -> float:
        """Rate that the limiter wants, to refill its bucket and its account, tokens/s."""
        missing, burst = max(self._missing, self._owed), self._burst_missing
        refill = missing / REFILL_S if missing > LEAST_MISSING else 0.0
        return max(refill, burst / BURST_S) if burst > LEAST_MISSING else refill

    def settle(
        self, weight: float, demand: Demand, view: GlobalView, limit: InForce, interval_ns: int
    ) -> float:
        """Set the fill rate for the next interval; return the depth, tokens.

        `weight` is what the limiter tells its peers next.
        """
        wanted, strict = _rates(weight, view, limit)
        interval_s = interval_ns / NS_PER_S
        idle_depth, least_depth = _idle_depth(limit), _least_depth(limit)
        burst = _depth(limit.burst, strict / limit.rate)
        loan = max(2 * view.news_ns / NS_PER_S, LOAN_S) * limit.static_rate
        capacity = max(loan, limit.static_burst) + least_depth + burst
        account = self.account
        account.settle(demand.forwarded_tokens, (1 + self._margin) * strict, capacity, interval_s)
        # What only an idle fleet allows is not claimed. The claim itself would take it away, so the
        # fleet would never come to rest. The static share fills it.
        idle_fleet = not weight + view.remote
        self._owed = max(account.missing - burst * idle_fleet, 0.0)
        filled = self.fill_rate * interval_s
        arrived = demand.instant_rate * interval_s
        need = min(self._need.update(arrived, filled, interval_ns), limit.burst)
        depth = max(_depth(limit.burst, wanted / limit.rate) + limit.item, idle_depth)
        if depth < least_depth and TRICKLE_S * _arriving(demand) > IDLE_ITEMS * limit.item:
            depth = least_depth
        # One limiter alone needs no more than the limit's burst.
        depth = min(depth, max(limit.burst, IDLE_ITEMS * limit.item))
        # After a late or an extra tick, the next interval may be longer than the last.
        longest_s = max(interval_ns, limit.interval_ns) / NS_PER_S
        # The fill rate comes first: what a bucket holds, the account cannot pay for a rate. Only
        # the least depth, which carries small windows, comes before it.
        spare = account.spare(wanted, longest_s)
        paid = min(need, spare)
        depth = account.depth(max(min(depth, max(spare, least_depth)), paid), limit.item)
        self.fill_rate = account.fill_rate(wanted, depth, longest_s)
        # A datapath that went on without its daemon has not forwarded what it did not have.
        self._tokens = min(max(self._tokens + filled - demand.forwarded_tokens, 0.0), depth)
        self._missing = max(min(idle_depth, depth) - self._tokens, 0.0)
        self._burst_missing = max(min(need, account.capacity) - self._tokens, 0.0)
        return depth


def _rates(weight: float, view: GlobalView, limit: InForce) -> tuple[float, float]:
    """Fill rate that peers can know of, and the strict share, both in tokens/s."""
    total = weight + view.remote
    local_limit = limit.rate * weight / total if total else limit.static_rate
    if not (view.connected or view.unnamed):
        return local_limit, limit.rate
    # The next weight counts as told: peers may use it before this limiter's next tick.
    least = min(view.told, weight)
    known = least + view.remote
    strict = limit.rate * least / known if least else 0.0
    rise = RISE * min(SWING * (least + view.least_remote) / known, 1.0) if least else 1.0
    fill_rate = min(local_limit, max(max(rise, 1.0) * strict, limit.static_rate))
    # While no limiter has a demand, each has its static share.
    return fill_rate, strict if total else limit.static_rate


def _idle_depth(limit: InForce) -> float:
    """Depth of an idle limiter, tokens."""
    static = limit.static_rate / limit.rate
    return static * min(2 * limit.burst, IDLE_S * limit.rate) + IDLE_ITEMS * limit.item


def _least_depth(limit: InForce) -> float:
    """Least depth of a limiter with traffic, tokens."""
    least = min(max(DEPTH_S * limit.static_rate, limit.item), DEPTH_ITEMS * limit.item)
    return max(least, IDLE_ITEMS * limit.item)


def _arriving(demand: Demand) -> float:
    """Rate of arrival in the last half second, tokens/s."""
    return demand.rest + sum([flow.fast for flow in demand.sample])


def _depth(burst: float, share: float) -> float:
    """Depth for a share of the limit, tokens. Shares that sum to 1 have at most two bursts."""
    return burst * min(math.sqrt(share), 2 * share)
