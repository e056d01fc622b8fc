"""The local demand of one limit (paper, section 3.1): a rate over each interval, then an EWMA.

Smoothing hides a change, so a start is not smoothed: after `IDLE_NS` without a token the filters
restart, and the first demand counts whole. (Paper, section 3.2.2: a new flow gets its instantaneous
rate, so that slow start can continue.)
"""

from __future__ import annotations

from collections.abc import Collection

from drld.estimate.ewma import Ewma
from drld.estimate.flows import FlowRates, unbottlenecked_rate
from drld.model import NS_PER_S, Demand, FlowId, Measurement
from drld.units import BYTES

IDLE_NS = 1 * NS_PER_S
"""The time without a token after which a limit is idle on this limiter, ns."""
_IDLE = Demand(0.0, 0.0, None, 0.0, 0, 0.0, first=False, idle=True)
"""The demand of all idle limits: most of ten thousand limits are idle."""


class DemandEstimator:
    """Turns each `Measurement` of a limit into its `Demand`."""

    def __init__(self, history: float, item: int = BYTES.item) -> None:
        """Begin without history. `history` is the weight that history one second old keeps, 0 to 1
        (the configured EWMA); `item` is the typical item of the limit's unit, tokens."""
        self._rate = Ewma(history)
        self._item = item
        self._flow_rates = FlowRates(item=item)
        self._silent_ns = IDLE_NS

    @property
    def idle(self) -> bool:
        """Whether no token has arrived for `IDLE_NS`."""
        return self._silent_ns >= IDLE_NS

    def update(self, measurement: Measurement) -> tuple[Demand, Collection[FlowId]]:
        """Add one interval; return the demand and the flows to evict from the sample.

        Raises:
            ValueError: the interval is not positive.
        """
        interval_ns = measurement.interval_ns
        if interval_ns <= 0:
            raise ValueError(f"interval_ns: must be positive (got {interval_ns})")
        # Owed tokens are a debt that the bucket pays with time. They are no demand, and the account
        # of the allocator does not pay them a second time.
        arrived = measurement.arrived_tokens - measurement.owed_tokens
        was_idle = self.idle
        self._silent_ns = 0 if arrived else self._silent_ns + interval_ns
        instant = arrived * NS_PER_S / interval_ns
        if self.idle or was_idle:
            self._rate.restart()
        evict: Collection[FlowId] = self._flow_rates.update(
            measurement.flows, arrived, interval_ns, measurement.hits
        )
        if self.idle:
            evict = tuple({*evict, *measurement.flows})
            self._flow_rates = FlowRates(item=self._item)
            if not (measurement.forwarded_tokens or measurement.backlog or measurement.saturated):
                return _IDLE, evict
        rates = self._flow_rates.rates
        demand = Demand(
            rate=self._rate.update(instant, interval_ns),
            instant_rate=instant,
            flow_rate=unbottlenecked_rate(rates),
            long_rate=self._flow_rates.total,
            flows=len(rates),
            drop_ratio=measurement.dropped_tokens / arrived if arrived else 0.0,
            first=was_idle and arrived > 0,
            idle=self.idle,
            fastest_rate=max(rates, default=0.0) or None,
            forwarded_tokens=measurement.forwarded_tokens - measurement.owed_tokens,
            sample=self._flow_rates.states,
            rest=self._flow_rates.rest.fast,
            backlog=measurement.backlog,
            saturated=measurement.saturated,
        )
        return demand, evict
