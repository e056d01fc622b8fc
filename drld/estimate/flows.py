"""A bounded sample of flows, and an estimate of an unbottlenecked flow's rate.

Paper, section 3.2.2: a limiter keeps byte counters for a constant-size set of flows. It discards
small flows and resamples, so that the set comes to hold the fast ones. It takes the fastest flow to
be unbottlenecked. Here the counters count tokens: bytes of packets, or of another unit. There are
two halves, because the first runs for each packet and the second once a tick.

`FlowSample` counts every item of a flow in the set. (One packet in sixteen would show too little of
a slow flow in 50 ms.) While the set has room, any packet of a new flow enters it. Only the tick
makes room, at moments that do not depend on the traffic. So the packet that finds room is a uniform
draw over packets. A flow enters in proportion to its rate, as with the paper's resample
probability, but without a draw for each packet. A lone new flow is seen at once.

`FlowRates` estimates. Each flow's rate is an EWMA corrected for its start: the weights sum to 1 -
alpha**k after k ticks. So a young flow's estimate is the mean over its short life. The tokens of
flows outside the set make one more pseudo-flow. So the rates always sum to the limiter's (`total`).

A flow *pauses* once it was silent for `PAUSE_NS`, and for the time in which it used to send
`PAUSE_ITEMS` items. It counts for nothing until it sends again, and then with the average that is
left. So a flow that ends loses its share soon, and a flow that comes out of a timeout does not
start from zero. TCP's retransmission timer waits for 200 ms and a round trip, so most timeouts are
too short for a pause. The packets of some flows are that far apart, too.

Deviation. The rate of an unbottlenecked flow is not the fastest flow's. The maximum of n noisy
rates grows with n, so a limiter with many flows would underestimate their number. We take the
largest f that is the mean of all flows at or above `CLUSTER` of f (found by iterating from the
maximum). Then equal flows all count, whatever the noise. Flows that are bottlenecked elsewhere,
below `CLUSTER` of the fair rate, do not count, as the paper wants. Three flows in one bucket stay
unequal for seconds, a factor of two apart. With half of f, or with rates that halve in a second,
the fastest of them would be the only unbottlenecked one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from operator import itemgetter
from typing import NamedTuple

from drld.model import NS_PER_S, FlowId
from drld.mypyc import mypyc_attr
from drld.units import BYTES

CAPACITY = 64
"""Most flows in the sample."""
CLUSTER = 0.4
"""The part of f that the slowest unbottlenecked flow has."""
RESIDENCE_NS = 1 * NS_PER_S
"""The least time in the sample before a slow flow makes room: some round trips show its rate."""
PAUSE_NS = 3 * NS_PER_S // 10
PAUSE_ITEMS = 4
"""A flow pauses after this time and this many items of silence (see above)."""
SILENCE_NS = 3 * NS_PER_S
"""The silence after which a flow leaves the sample: ten pauses, longer than most timeouts."""
HISTORY = 0.7
"""The weight that a flow's history one second old keeps (see \"Deviation\" above)."""
FAST_NS = NS_PER_S // 2
"""Time constant of `FlowState.fast`: some round trips, and too short for people to notice."""
NEVER_NS = 1 << 61
"""Longer than any daemon runs: 73 years."""


class FlowSlot:
    """The datapath's state of one flow of the sample."""

    __slots__ = ("due_ns", "hits", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        """Tokens that arrived since the last `take`."""
        self.hits = 0
        """Tokens since the last `take` that the limit refused or marked."""
        self.due_ns = 0
        """Time at which the flow's bucket is full again (drld.police.flow_bucket), ns."""

    def copy(self) -> FlowSlot:
        """A slot in the same state."""
        made = FlowSlot(self.size)
        made.hits, made.due_ns = self.hits, self.due_ns
        return made


@mypyc_attr(allow_interpreted_subclasses=True)
class FlowSample:
    """Token counters of at most `capacity` flows."""

    __slots__ = ("_slots", "capacity")

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self._slots: dict[FlowId, FlowSlot] = {}

    def observe(self, flow: FlowId, length: int) -> FlowSlot | None:
        """Count an item of `length` tokens if its flow is in the set, or the set has room for it.

        Returns:
            The flow's slot; None: the flow is not in the set.
        """
        slot = self._slots.get(flow)
        if slot is not None:
            slot.size += length
        elif len(self._slots) < self.capacity:
            slot = self._slots[flow] = FlowSlot(length)
        return slot

    def peek(self, flow: FlowId) -> FlowSlot | None:
        """The slot that `observe` would return, or one like it; the set stays as it is."""
        slot = self._slots.get(flow)
        return FlowSlot(0) if slot is None and len(self._slots) < self.capacity else slot

    def take(self) -> tuple[dict[FlowId, int], dict[FlowId, int]]:
        """Read and reset the counters of all flows.

        Returns:
            Tokens of each flow since the last `take`; and, of these, the tokens that the limit
            refused or marked, without the flows that have none.
        """
        counted, hits = {}, {}
        for flow, slot in self._slots.items():
            counted[flow] = slot.size
            slot.size = 0
            if slot.hits:
                hits[flow] = slot.hits
                slot.hits = 0
        return counted, hits

    def evict(self, flows: Iterable[FlowId]) -> None:
        """Drop flows from the set; those that are not in it are ignored."""
        for flow in flows:
            self._slots.pop(flow, None)

    def copy(self) -> FlowSample:
        """A sample in the same state."""
        made = self._empty()
        made.capacity = self.capacity
        made._slots = {flow: slot.copy() for flow, slot in self._slots.items()}
        return made

    def _empty(self) -> FlowSample:
        """A new sample of the same kind of flows."""
        return FlowSample()


class Step(NamedTuple):
    """What an interval means to the estimates of all flows of a limit."""

    interval_ns: int
    old: float
    """The part of `FlowState.average` that older intervals keep."""
    new: float
    """The part that this interval has."""
    fast_old: float
    fast_new: float
    """The same parts of `FlowState.fast`."""
    pause: int
    """The tokens of a flow's silence after which it pauses, times `NS_PER_S`."""

    @classmethod
    def of(cls, interval_ns: int, item: int) -> Step:
        """The step of an interval; `item` is the typical item of the limit's unit, tokens."""
        old, fast_old = HISTORY ** (interval_ns / NS_PER_S), math.exp(-interval_ns / FAST_NS)
        return cls(interval_ns, old, 1 - old, fast_old, 1 - fast_old, PAUSE_ITEMS * item * NS_PER_S)


class FlowState:
    """Estimates of one flow, from the ticks so far."""

    __slots__ = (
        "age_ns", "average", "fast", "last", "paused", "rate", "rate_sum", "silent_ns", "unhit_ns",
        "weight",
    )  # fmt: skip

    def __init__(self) -> None:
        self.rate_sum = 0.0
        """Numerator of the start-corrected EWMA, and its weight."""
        self.weight = 0.0
        self.average = 0.0
        """Mean rate over the flow's life so far, tokens/s; older intervals count less."""
        self.rate = 0.0
        """The average, tokens/s; 0 while the flow pauses."""
        self.paused = False
        """Whether the flow has been silent for so long that it counts for nothing."""
        self.fast = 0.0
        """EWMA of `FAST_NS` that climbs from zero, tokens/s. The sum over all flows is the EWMA of
        the limiter's arrivals, whichever flows come and go."""
        self.last = 0.0
        """Rate over the last interval, tokens/s."""
        self.age_ns = 0
        self.silent_ns = 0
        self.unhit_ns = NEVER_NS
        """Time since the limit refused or marked a packet of the flow, ns."""

    def update(self, counted: int, step: Step, *, hit: bool) -> None:
        """Add one interval: the tokens of the flow in it, and whether the limit refused or marked
        any of them."""
        interval_ns, old, new, fast_old, fast_new, pause = step
        self.last = last = counted * NS_PER_S / interval_ns
        self.rate_sum = rate_sum = old * self.rate_sum + new * last
        self.fast = fast_old * self.fast + fast_new * last
        self.weight = weight = old * self.weight + new
        self.average = average = rate_sum / weight if weight else 0.0
        self.age_ns += interval_ns
        self.silent_ns = silent_ns = 0 if counted else self.silent_ns + interval_ns
        self.paused = paused = silent_ns >= PAUSE_NS and average * silent_ns >= pause
        self.rate = 0.0 if paused else average
        self.unhit_ns = 0 if hit else self.unhit_ns + interval_ns


class FlowRates:
    """Smoothed rate of each flow of the sample, in tokens/s."""

    def __init__(self, capacity: int = CAPACITY, item: int = BYTES.item) -> None:
        """`capacity`: the most flows of the sample; `item`: typical item of the limit's unit,
        tokens."""
        self._item = item
        self.capacity = capacity
        self._flows: dict[FlowId, FlowState] = {}
        self.rest = FlowState()
        """Estimates of all flows outside the sample, as if they were one flow."""
        self._ahead = 0
        """Tokens of the sample that are not in the total yet. A datapath that counts while the
        daemon reads shows a packet in one of the two first."""

    @property
    def rates(self) -> list[float]:
        """The rates of the flows in the sample, tokens/s, in no order."""
        return [flow.rate for flow in self._flows.values()]

    @property
    def total(self) -> float:
        """Sum of all rates, flows outside the sample included, tokens/s."""
        return sum(self.rates) + self.rest.rate

    @property
    def states(self) -> Collection[FlowState]:
        """Estimates of the flows in the sample, in no order."""
        return self._flows.values()

    def update(
        self,
        counted: Mapping[FlowId, int],
        arrived_tokens: int,
        interval_ns: int,
        hits: Collection[FlowId] = (),
    ) -> list[FlowId]:
        """Add one interval; return the flows to evict from the sample.

        Flows that were silent for `SILENCE_NS` are evicted. While a flow finds no room, so is an
        eighth of the set: the slowest flows below `CLUSTER` of the unbottlenecked rate. They must
        have had `RESIDENCE_NS` to show their rate. A flow in a pause counts with its average, as a
        fast flow among many slow ones would otherwise take long to come back.
        """
        step = Step.of(interval_ns, self._item)
        for key in self._flows.keys() - counted.keys():
            del self._flows[key]
        evicted = []
        flows = self._flows
        for key, size in counted.items():
            flow = flows.get(key)
            if flow is None:
                flow = flows[key] = FlowState()
            flow.update(size, step, hit=key in hits)
            if flow.silent_ns >= SILENCE_NS:
                evicted.append(key)
        rest = arrived_tokens - sum(counted.values()) - self._ahead
        self._ahead = max(-rest, 0)
        rest = max(rest, 0)
        self.rest.update(rest, step, hit=False)
        if rest:
            evicted += self._slowest(set(evicted), self.rest.fast)
        for key in evicted:
            del self._flows[key]
        return evicted

    def _slowest(self, leaving: set[FlowId], rest: float) -> list[FlowId]:
        floor = CLUSTER * (unbottlenecked_rate(self.rates) or 0.0)
        sampled = sum(flow.fast for flow in self._flows.values())
        if self._flows and rest > sampled:
            # The sample carries less than half of the tokens: flows below its mean make room.
            floor = max(floor, sampled / len(self._flows))
        candidates = [
            (flow.average, key)
            for key, flow in self._flows.items()
            if key not in leaving and flow.age_ns >= RESIDENCE_NS and flow.average < floor
        ]
        candidates.sort(key=itemgetter(0))
        return [key for _, key in candidates[: max(self.capacity // 8, 1)]]


def unbottlenecked_rate(rates: Iterable[float], cluster: float = CLUSTER) -> float | None:
    """Rate of an unbottlenecked flow in tokens/s, or None where no flow has a rate.

    The largest f that is the mean of all rates at or above `cluster` * f. `cluster` = 1 is the
    paper's rule, the fastest flow.
    """
    live = [rate for rate in rates if rate > 0]
    if not live:
        return None
    estimate = max(live)
    while True:
        members = [rate for rate in live if rate >= cluster * estimate]
        # The mean of equal floats may round to above them; an estimate never grows.
        mean = min(sum(members) / len(members), estimate)
        if mean == estimate:
            return estimate
        estimate = mean
