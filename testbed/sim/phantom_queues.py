"""BC-PQP, a policer with a phantom queue for each flow: a reference at one limiter.

Source: Tahir et al., *Efficient Policy-Rich Rate Enforcement with Phantom Queues* (SIGCOMM 2024).

A phantom queue is a counter: the bytes that a shaper's queue would hold. A packet is forwarded at
once if it fits into its flow's queue, else it is dropped. The limit's rate drains all queues that
are not empty, in equal parts (here fluid, as round robin with small quanta). So each flow has its
fair share in the long run. A queue has to be as long as the slowest flow needs, which permits a
flow a burst of that length. So burst control looks at each queue once a window:

- if more than 1.5 times the drained bytes arrived, the rest of the queue is filled with bytes
  that stand for no packet, and the flow has to wait for tokens;
- if less than half of them arrived, the filling is taken out again.

Without flow limits of its own it has one queue for each flow, however many there are.
"""

from __future__ import annotations

from random import Random

from drld.model import NS_PER_S, Enforcement, FlowId
from drld.police.policer import DROP, FORWARD, Policer
from drld.policy import Policy
from testbed import MTU

WINDOW_NS = 100_000_000
"""The window of burst control, and the longest round trip for which queues are sized."""
_ABOVE, _BELOW = 1.5, 0.5
_RENO_PACKETS = 18
"""A queue of P**2 / 18 packets lets a New Reno flow with P packets in flight fill the rate."""
_LEAST = 1e-6
"""Least bytes of a queue that is not empty; less is an error of rounding."""


class PhantomQueue:
    """The counters of one flow, bytes."""

    __slots__ = ("arrived", "drained", "filling", "occupied")

    def __init__(self) -> None:
        self.occupied = 0.0
        self.filling = 0.0
        """The part of `occupied` that stands for no packet."""
        self.arrived = 0
        """Bytes that the queue has accepted in the window; `drained`: those that left it."""
        self.drained = 0.0

    def control(self, capacity: float) -> None:
        """Fill the queue or take the filling out, and begin a window."""
        if self.arrived > _ABOVE * self.drained:
            self.filling += capacity - self.occupied
            self.occupied = capacity
        elif self.arrived < _BELOW * self.drained:
            self.occupied -= min(self.filling, self.occupied)
            self.filling = 0.0
        self.arrived, self.drained = 0, 0.0


class PhantomQueues(Policer):
    """A limit's policer; counts, sample and rate are those of drld's."""

    __slots__ = ("_busy", "_capacity", "_rate", "_settled_ns", "_window_ns", "queues")

    def __init__(self, policy: Policy, enforcement: Enforcement, now_ns: int) -> None:
        super().__init__(policy, enforcement, now_ns)
        self.queues: dict[FlowId, PhantomQueue] = {}
        self._busy: list[PhantomQueue] = []
        """The queues that hold bytes."""
        self._rate = policy.rate
        packets = policy.rate * WINDOW_NS / NS_PER_S / MTU
        self._capacity = max(packets**2 / _RENO_PACKETS, 2.0) * MTU
        self._settled_ns = self._window_ns = now_ns

    def police(
        self,
        flow: FlowId,
        length: int,
        now_ns: int,
        rng: Random,  # noqa: ARG002 -- nothing is drawn
        capable: bool = False,  # noqa: ARG002 -- nothing is marked
    ) -> int:
        """See `Policer`."""
        self.arrive(flow, length)
        self._settle(now_ns)
        queue = self.queues.get(flow)
        if queue is None:
            queue = self.queues[flow] = PhantomQueue()
        if queue.occupied + length > self._capacity:
            self.drop(length)
            return DROP
        if not queue.occupied:
            self._busy.append(queue)
        queue.occupied += length
        queue.arrived += length
        self.forward(length)
        return FORWARD

    def _settle(self, now_ns: int) -> None:
        """Drain the queues up to now, window by window."""
        while now_ns - self._window_ns >= WINDOW_NS:
            self._window_ns += WINDOW_NS
            self._drain(self._window_ns)
            for queue in self.queues.values():
                queue.control(self._capacity)
            self.queues = {flow: queue for flow, queue in self.queues.items() if queue.occupied}
            self._busy = [*self.queues.values()]
        self._drain(now_ns)

    def _drain(self, now_ns: int) -> None:
        budget = self._rate * (now_ns - self._settled_ns) / NS_PER_S
        self._settled_ns = now_ns
        while self._busy and budget >= _LEAST:
            part = budget / len(self._busy)
            for queue in self._busy:
                taken = min(queue.occupied, part)
                queue.occupied -= taken
                queue.drained += taken
                budget -= taken
            self._busy = [queue for queue in self._busy if queue.occupied > 0.0]
