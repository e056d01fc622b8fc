"""A datapath in memory: policers, and notes of what the engine asked for."""

from __future__ import annotations

from collections.abc import Iterable

from drld.errors import DatapathError
from drld.model import Enforcement, FlowId, Measurement
from drld.spec import LimitSpec
from testbed.sim.datapath import MemoryDatapath


class FakeDatapath(MemoryDatapath):
    name = "fake"

    def __init__(self) -> None:
        super().__init__()
        self.programmed: list[tuple[int, Enforcement]] = []
        self.refuse = False
        self.shares: dict[int, Enforcement] = {}
        self.flushed_ns: list[int] = []
        self.attached: list[LimitSpec] = []
        self.read_limits: list[int] = []

    def attach(self, limits: Iterable[tuple[LimitSpec, Enforcement]], now_ns: int) -> None:
        if self.refuse:
            raise DatapathError("refused")
        limits = list(limits)
        self.attached = [limit for limit, _ in limits]
        super().attach(limits, now_ns)

    def read(self, limit_id: int, now_ns: int) -> Measurement:
        self.read_limits.append(limit_id)
        return super().read(limit_id, now_ns)

    def program(
        self, limit_id: int, enforcement: Enforcement, evict: Iterable[FlowId], now_ns: int
    ) -> None:
        self.programmed.append((limit_id, enforcement))
        super().program(limit_id, enforcement, evict, now_ns)

    def set_share(self, limit_id: int, share: Enforcement) -> None:
        self.shares[limit_id] = share

    def flush(self, now_ns: int) -> None:
        self.flushed_ns.append(now_ns)
