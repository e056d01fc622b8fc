"""A datapath whose traffic is a constant rate, and not packets.

It falls back to the static share as the kernel's datapath does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from drld.model import GRACE_INTERVALS, Enforcement, FlowId, Measurement
from drld.spec import LimitSpec
from testbed.sim.datapath import MemoryDatapath

from ..factories import MBIT

LIMIT = 10 * MBIT
FLOW_RATE = 2.0 * LIMIT
"""The rate of one flow, bytes/s: more than the limit."""


class FluidDatapath(MemoryDatapath):
    """The traffic of one limit, and the part that passes."""

    def __init__(self, flows: int) -> None:
        super().__init__()
        self.flows = flows
        """Number of flows, each of which sends `FLOW_RATE`."""
        self.record = Enforcement()
        self.share = Enforcement()
        self._grace_ns = 0
        self._heartbeat_ns = 0
        self._read_ns = 0

    def attach(self, limits: Iterable[tuple[LimitSpec, Enforcement]], now_ns: int) -> None:
        """See `Datapath`."""
        ((limit, self.record),) = limits
        self._grace_ns = GRACE_INTERVALS * limit.policy.interval_ns
        self._heartbeat_ns = self._read_ns = now_ns

    def had_traffic(self, among: Collection[int]) -> Collection[int]:
        """See `Datapath`."""
        return [1] if self.flows and 1 in among else []

    def read(self, limit_id: int, now_ns: int) -> Measurement:
        """See `Datapath`."""
        interval_ns = now_ns - self._read_ns
        self._read_ns = now_ns
        each = round(FLOW_RATE * interval_ns / 1e9)
        arrived = self.flows * each
        forwarded = min(arrived, round(self.passes(now_ns) * interval_ns / 1e9))
        return Measurement(
            interval_ns=interval_ns,
            arrived_tokens=arrived,
            arrived_items=arrived // 1500,
            forwarded_tokens=forwarded,
            forwarded_items=forwarded // 1500,
            dropped_tokens=arrived - forwarded,
            dropped_items=(arrived - forwarded) // 1500,
            flows=dict.fromkeys(range(1, self.flows + 1), each),
        )

    def program(
        self, limit_id: int, enforcement: Enforcement, evict: Iterable[FlowId], now_ns: int
    ) -> None:
        """See `Datapath`; it is in force at once."""
        self.record = enforcement

    def set_share(self, limit_id: int, share: Enforcement) -> None:
        """See `Datapath`."""
        self.share = share

    def flush(self, now_ns: int) -> None:
        """See `Datapath`: the daemon lives."""
        self._heartbeat_ns = now_ns

    def passes(self, now_ns: int) -> float:
        """The rate that passes at that moment, bytes/s."""
        old = now_ns - self._heartbeat_ns > self._grace_ns
        record = self.share if old else self.record
        passing = self.flows * FLOW_RATE * (1 - record.drop_probability)
        return passing if record.depth is None else min(passing, max(record.fill_rate, 0))

    @property
    def falls_back_ns(self) -> int:
        """The time from which it enforces its static share if the daemon does nothing more, ns."""
        return self._heartbeat_ns + self._grace_ns + 1
