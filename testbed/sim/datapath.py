"""A datapath in memory (`police.datapath.Datapath`): one policer per limit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from drld.model import Enforcement, FlowId, FlowKey, Measurement
from drld.police.policer import Policer
from drld.spec import LimitSpec


class MemoryDatapath:
    """Holds the policers; the simulated links call them for each packet."""

    name = "simulated"

    def __init__(self, policer: type[Policer] = Policer) -> None:
        self._policer = policer
        self.policers: dict[int, Policer] = {}
        """Policers by the limit's id."""

    def attach(self, limits: Iterable[tuple[LimitSpec, Enforcement]], now_ns: int) -> None:
        """See `Datapath`."""
        self.policers = {
            limit.id: self.policers.get(limit.id)
            or self._policer(limit.policy, enforcement, now_ns)
            for limit, enforcement in limits
        }

    def had_traffic(self, among: Collection[int]) -> Collection[int]:
        """See `Datapath`."""
        found = ((limit_id, self.policers.get(limit_id)) for limit_id in among)
        return [it for it, policer in found if policer is not None and policer.had_traffic]

    def read(self, limit_id: int, now_ns: int) -> Measurement:
        """See `Datapath`."""
        return self.policers[limit_id].read(now_ns)

    def program(
        self, limit_id: int, enforcement: Enforcement, evict: Iterable[FlowId], now_ns: int
    ) -> None:
        """See `Datapath`; takes effect at once."""
        self.policers[limit_id].program(enforcement, evict, now_ns)

    def snapshot(self, limit_id: int, flow: FlowKey) -> Policer:  # noqa: ARG002 -- it has all flows
        """See `Datapath`."""
        return self.policers[limit_id].copy()

    def set_share(self, limit_id: int, share: Enforcement) -> None:
        """See `Datapath`; no effect, as this datapath ends with its limiter."""

    def flush(self, now_ns: int) -> None:
        """See `Datapath`."""

    def counters(self) -> Mapping[str, int]:
        """See `Datapath`; there are no failures."""
        return {}

    def detach(self) -> None:
        """See `Datapath`."""
        self.policers = {}
