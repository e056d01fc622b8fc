"""The rates that the flows of a limiter with `fair` want. Pure.

- A flow whose packets were refused or marked lately wants all it can get, if it sends at least
  `WHOLE` of the level. TCP swings between half and one and a half of its share. If such a flow
  counted as its present rate, it would be given that rate, and less each time.
- A flow that began in the last interval wants twice what it sent, since it was seen for half of
  the interval on average.
- Any other flow wants `headroom` more than it sends, so that noise alone limits no flow.

Flows outside the sample count like as many sampled ones as carry their tokens. Short flows end, and
others follow them outside the sample. So the tokens outside that correspond to flows in a pause
still count, as a flow of their own. If they raised the number of flows per sampled flow instead,
they would multiply the flows that want all they can get.
"""

from __future__ import annotations

from drld.allocators.fair_flows import CROWD_COPIES
from drld.allocators.water_level import water_level
from drld.model import NS_PER_S, Demand

HOLD_NS = NS_PER_S // 2
"""Time for which a refused packet shows that its flow wants more: several round trips, since few
flows lose a packet in each."""
WHOLE = 0.25
"""Part of the level above which a refused flow wants all it can get: half of TCP's lowest swing."""


class Wants:
    """The rates that the flows want after one interval."""

    __slots__ = ("copies", "rates", "unlimited")

    def __init__(self, demand: Demand, level: float, headroom: float, interval_ns: int) -> None:
        """`level`: that of the interval before, tokens/s; `headroom`: a parameter of `fair`."""
        rates: list[float] = []
        self.rates = rates
        """Rate that each sampled flow wants, but for the unlimited ones, tokens/s."""
        self.unlimited = 0
        """Number of sampled flows that want all they can get."""
        sampled = sum([flow.fast for flow in demand.sample])
        self.copies = 1 + demand.rest / sampled if sampled else 1.0
        """Flows per sampled flow."""
        more = 1 + headroom
        hold_ns = max(HOLD_NS, interval_ns)
        ended = 0.0
        for flow in demand.sample:
            if flow.age_ns <= interval_ns and not self.crowd:
                rates.append(2 * flow.last)
            elif flow.paused:
                ended += flow.fast
            elif flow.unhit_ns < hold_ns and flow.fast >= WHOLE * level:
                self.unlimited += 1
            else:
                rates.append(more * flow.fast)
        part = ended / sampled if sampled else 1.0
        if demand.rest and part:
            self.add(more * demand.rest * part)

    @property
    def crowd(self) -> bool:
        """Whether the flows are a crowd (drld.allocators.fair_flows)."""
        return self.copies > CROWD_COPIES

    def add(self, rate: float) -> None:
        """Add something that wants tokens beside the flows, tokens/s."""
        self.rates.append(rate / self.copies)

    def level(self, capacity: float, others: float = 0.0) -> float:
        """Level at which these and `others` unlimited flows share a capacity, both tokens/s."""
        return water_level(
            capacity / self.copies, self.rates, self.unlimited + others / self.copies
        )

    def used(self, level: float) -> float:
        """Rate of all flows together if none exceeds the level, tokens/s."""
        limited = sum([rate if rate < level else level for rate in self.rates])
        return self.copies * (self.unlimited * level + limited)

    def divided(self, level: float) -> tuple[float, float]:
        """Rate of the flow that wants most, and of all others, if none exceeds the level."""
        own = level if self.unlimited else min(max(self.rates, default=0.0), level)
        return own, self.used(level) - own
