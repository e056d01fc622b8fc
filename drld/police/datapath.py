"""The protocol of every datapath."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from drld.model import Enforcement, FlowId, FlowKey, Measurement
from drld.police.policer import Policer
from drld.spec import LimitSpec


class Datapath(Protocol):
    """Counts and polices the packets of a set of limits (docs/architecture.md).

    All methods are synchronous and short; the daemon calls them from one task.
    """

    name: str
    """`nfqueue` or `kernel`."""

    def attach(self, limits: Iterable[tuple[LimitSpec, Enforcement]], now_ns: int) -> None:
        """Start to enforce limits, each with its first `Enforcement`.

        Removes the leftovers of a killed run of the same limiter. Called again while attached (a
        reload), it keeps the counters, tokens and flow samples of every limit whose id stays, and
        no packet passes unlimited meanwhile.

        Raises:
            DatapathError: the host refuses; no trace of this call stays, and the leftovers of a
                killed run stay, on either datapath.
        """

    def had_traffic(self, among: Collection[int]) -> Collection[int]:
        """The limits among these that may have seen a packet since the last call.

        `among` may name limits of other datapaths. A limit without packets costs almost nothing.
        """

    def read(self, limit_id: int, now_ns: int) -> Measurement:
        """The counts of this limit since its last read."""

    def program(
        self, limit_id: int, enforcement: Enforcement, evict: Iterable[FlowId], now_ns: int
    ) -> None:
        """Enforce this record from the next `flush` on; drop the named flows from the sample."""

    def snapshot(self, limit_id: int, flow: FlowKey) -> Policer:
        """A policer with the present tokens of this limit and of this flow, to try a packet on.

        Raises:
            KeyError: there is no such limit.
        """

    def set_share(self, limit_id: int, share: Enforcement) -> None:
        """Set the record to enforce once the daemon is dead, if `on_failure` is `share`.

        Before the first call this is the limit's first `Enforcement`.
        """

    def flush(self, now_ns: int) -> None:
        """End a tick: put the programmed records in force, and write the heartbeat."""

    def counters(self) -> Mapping[str, int]:
        """Counts of irregular packets and failures since `attach`, by name (`overflow`, ...)."""

    def detach(self) -> None:
        """Remove every rule, queue, filter and map; safe to call twice."""
