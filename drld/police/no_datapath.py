"""The datapath of a daemon without packet limits, on a host where no other datapath works."""
# ruff: noqa: ARG002 -- the protocol passes more than this datapath uses

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from drld.errors import DatapathError
from drld.model import Enforcement, FlowId, FlowKey, Measurement
from drld.police.policer import Policer
from drld.spec import LimitSpec


class NoDatapath:
    """Refuses every limit (`drld.police.datapath.Datapath`)."""

    name = "none"
    firewall = "none"
    queue = None

    def __init__(self, reason: str) -> None:
        """`reason` says to operators why no other datapath works."""
        self.reason = reason

    def attach(self, limits: Iterable[tuple[LimitSpec, Enforcement]], now_ns: int) -> None:
        """See `Datapath.attach`."""
        refusal = f"this daemon has no datapath for packets: {self.reason}"
        if refused := {limit.id: refusal for limit, _ in limits}:
            raise DatapathError(refusal, refused)

    def had_traffic(self, among: Collection[int]) -> Collection[int]:
        """See `Datapath.had_traffic`."""
        return ()

    def read(self, limit_id: int, now_ns: int) -> Measurement:
        """Never called: there are no limits."""
        raise KeyError(limit_id)

    def program(
        self, limit_id: int, enforcement: Enforcement, evict: Iterable[FlowId], now_ns: int
    ) -> None:
        """Never called: there are no limits."""
        raise KeyError(limit_id)

    def snapshot(self, limit_id: int, flow: FlowKey) -> Policer:
        """Never called: there are no limits."""
        raise KeyError(limit_id)

    def set_share(self, limit_id: int, share: Enforcement) -> None:
        """Never called: there are no limits."""
        raise KeyError(limit_id)

    def flush(self, now_ns: int) -> None:
        """See `Datapath.flush`."""

    def counters(self) -> Mapping[str, int]:
        """See `Datapath.counters`."""
        return {}

    def detach(self) -> None:
        """See `Datapath.detach`."""
