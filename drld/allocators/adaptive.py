"""Shares of a token bucket that follow the traffic, without a centre (`adaptive`).

SRTM's adaptor (2021, section V-D) divides the envelope (r, b) of a topic among brokers, by the mean
message rate and the largest backlog of the last 10 s (`drld.estimate.history`):

    r_l = r * rate_l / sum of all rates         b_l = b * backlog_l / sum of all backlogs

The paper's adaptor is one process, which waits for the reports of all brokers. Here each limiter
computes its own part from two gossiped sums. Sums that are old divide more than there is: with
values that jump, y_l / (sum as believed) added up to 3.63. So there is the *least-told rule*:

    A limiter's share is the least value that it told in the last D, over the sum of that value and
    the values that it believes of its peers now.

**Theorem.** If each believed value was told at most D ago, the shares sum to at most 1 at every
moment. *Proof.* Let m_l be the least that l told in the last D. The numerator
at l is m_l. Its denominator is at least the sum of all m. So the shares sum to at most 1. ∎

No limiter waits for another, and any number of values may change at once. D is the longest age of a
value that counts (`Membership.forgotten_ns`) and an interval, so lost updates do no harm. A peer
that is not connected has its static share taken out of the limit (drld.limiter). Shrinking buckets
lose tokens and growing ones get none. So the messages of the fleet conform to (r, b) at every
moment.

A limiter tells a *claim*: its rate or backlog less a floor, the part `floor` of its static share.
All limiters know the floors, so a limit without traffic has nothing to tell. With L the whole rate
or depth, C the part in force, c_l this limiter's static share, and E = m_l + the claims of the
others:

    u   = max(floor L, L / 1.1 - E)
    C_l = c_l u / (u + E) + C m_l / (u + E)

Both terms fall in E, and at E = sum of all m the C_l sum to C: the theorem holds for them. If
limiters know different peers, E differs between the static shares of which C consists. The first
term has the E of this limiter's own share, and the second a mean over the shares. So the theorem
holds there, too.

Deviations, and why:

- If the fleet claims less than the L / 1.1 for which an envelope is profiled, the rest is divided
  as the static shares. So each limiter has 1.1 times its rate and its share of the unclaimed rest.
  The paper's rule would give the rest to the few messages of the last seconds, and the next
  messages elsewhere would wait. Above L / 1.1, as in a profiled topic, the rule is the paper's.
- A claim that is younger than D takes from peers and gives its limiter nothing yet. So a limiter
  claims at once only the part that it lacks of 1.05 times the measured value. For the rest it
  raises the claim by `GROWTH` of its static share in D. Otherwise a topic that starts at all
  brokers at once would have no part of its rate for D.
- A limiter at which messages have waited throughout the window is *saturated*. Its `hold` may be
  full. Then its arrivals are as many as its part lets out, and that part would shrink. So it claims
  all that its peers leave of L / 1.1, and at least its static share. It takes nothing from limiters
  that claim no more than their static shares.
- A bucket is at least one item deep, or no message would ever pass: each limiter keeps a part of
  its static depth that has one item where the static share is smallest.

Units: rates tokens/s, backlogs and depths tokens. Invariants: the C_l of a fleet sum to at most L,
and C_l >= 0; a fleet without claims has its static shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum
from typing import Annotated, NamedTuple

from drld.allocators.base import Allocation, Allocator, InForce, require
from drld.estimate.history import History
from drld.model import NS_PER_S, Demand, Enforcement, GlobalView, Quantity

PROFILE = 1.1
"""Rate of an envelope over that of its messages (2021, section VI)."""
NEED = 1.05
"""Part of the measured value that a limiter should have; it claims the missing rest at once."""
GROWTH = 0.04
"""A claim that is not needed may grow by this part of the static share in each D. With `PROFILE`,
peers meanwhile have the rate that they need."""


_NOTHING = GlobalView(0.0, frozenset(), None)
"""The view of a fabric without a second quantity: the depth stays as the static shares."""


@dataclass(frozen=True, slots=True)
class AdaptiveParameters:
    """Parameters of `adaptive`."""

    window: Annotated[float, "from step to 600"] = 10.0
    """Length of the history of rates and backlogs, s."""
    step: Annotated[float, "from 0.1 to 60"] = 1.0
    """Length of its steps, s."""
    floor: Annotated[float, "from 0.001 to 1"] = 0.05
    """Part of its static share that a limiter keeps without messages."""

    def __post_init__(self) -> None:
        require(self, "step", 0.1 <= self.step <= 60)
        require(self, "window", self.step <= self.window <= 600)
        require(self, "floor", 0.001 <= self.floor <= 1)


class _Divided(NamedTuple):
    """A rate or a depth that is divided."""

    in_force: float
    static: float
    """This limiter's static share of the whole."""
    whole: float

    def part(self, least: float, view: GlobalView, floor: float) -> float:
        """C_l, with `least` as m_l."""
        if self.whole <= 0:
            return 0.0
        shares = view.claims or ((1.0, view.remote),)
        claimed = [(share, least + remote) for share, remote in shares]
        least_total = self.whole / PROFILE
        totals = [(share, max(floor * self.whole + it, least_total)) for share, it in claimed]
        weight = fsum(share for share, _ in shares) or 1.0
        mean = fsum(share / total for share, total in totals) / weight
        unclaimed = 1 - claimed[0][1] / totals[0][1]
        return self.static * unclaimed + self.in_force * least * mean


class Adaptive(Allocator):
    """Divide rate and depth by the rates and backlogs of the last seconds."""

    quantity = Quantity.RATE
    second = Quantity.BACKLOG
    counts_loss = True
    Parameters = AdaptiveParameters

    def __init__(self, parameters: AdaptiveParameters) -> None:
        super().__init__(parameters)
        self.parameters: AdaptiveParameters = parameters
        self._history = History(
            round(parameters.window * NS_PER_S), round(parameters.step * NS_PER_S)
        )
        self._saturated_ns = 0
        """The time for which messages have waited without a pause, ns."""

    @property
    def settled(self) -> bool:
        """See `Allocator`: whether nothing came in the window."""
        return self._history.silent

    def allocate(
        self, demand: Demand, view: GlobalView, limit: InForce, interval_ns: int
    ) -> Allocation:
        """Compute both claims and this limiter's part of rate and depth."""
        history = self._history
        history.update(demand.instant_rate * interval_ns / NS_PER_S, demand.backlog, interval_ns)
        self._saturated_ns = self._saturated_ns + interval_ns if demand.saturated else 0
        rates = _Divided(limit.rate, limit.static_rate, limit.whole_rate)
        depths = _Divided(limit.burst, limit.static_burst, limit.whole_burst)
        # A limiter can use no more than the limit, even if more arrives until `hold` is full.
        rate, claim = self._part(min(history.rate, limit.whole_rate), view, rates)
        depth, second = self._part(history.backlog, view.second or _NOTHING, depths)
        # All limiters keep the same part of their static depths.
        kept = min(limit.item / limit.least_burst, 1.0) if limit.least_burst else 1.0
        depth = kept * limit.static_burst + (1 - kept) * depth
        # Rounded down, as the sum may not exceed the limit.
        return Allocation(claim, Enforcement(fill_rate=int(rate), depth=int(depth)), rate, second)

    def _part(self, measured: float, view: GlobalView, of: _Divided) -> tuple[float, float]:
        """This limiter's part of a rate or depth, and its claim.

        Args:
            measured: the rate or backlog of the window.
            view: this limiter's knowledge of the quantity.
            of: the rate or depth.
        """
        floor = self.parameters.floor
        part = of.part(view.told, view, floor)
        needed = NEED * measured
        if self._saturated_ns >= self._history.window_ns:
            least = of.static / PROFILE
            others = view.remote + floor * (of.whole - of.static)
            measured = max(least, of.whole / PROFILE - others)
            needed = max(needed, least)
        most = view.told + GROWTH * of.static + max(needed - part, 0.0)
        claim = min(max(measured - floor * of.static, 0.0), most)
        if claim < view.told:  # Peers may use it before the next tick.
            part = of.part(claim, view, floor)
        return part, claim
