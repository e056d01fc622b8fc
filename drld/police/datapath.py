"""What every datapath does, whatever carries it out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from drld.model import Enforcement, FlowId, Measurement
from drld.spec import LimitSpec


class Datapath(Protocol):
    """Counts and polices the packets of a set of limits (docs/architecture.md).

    All methods are synchronous and short; `drld.daemon.process` calls them from one task.
    """

    name: str
    """`nfqueue` or `kernel`."""

    def attach(self, limits: Iterable[tuple[LimitSpec, Enforcement]], now_ns: int) -> None:
        """Start enforcing: each limit with its first `Enforcement`.

        Removes the leftovers of a killed run of the same limiter first. Called again with
        another set while attached (a reload), it keeps the counters, tokens and flow samples
        of every limit whose id stays, and leaves no window in which packets go unlimited.

        Raises:
            DatapathError: the host refuses; nothing is left behind but what a killed run has left,
                on whichever datapath, which stays as it is.
        """

    def had_traffic(self) -> Collection[int]:
        """Limits that may have seen a packet since the last call; all others have seen none.

        It costs next to nothing for a limit without packets.
        """

    def read(self, limit_id: int, now_ns: int) -> Measurement:
        """What was counted since the last read of this limit."""

    def program(
        self, limit_id: int, enforcement: Enforcement, evict: Iterable[FlowId], now_ns: int
    ) -> None:
        """Enforce this record from the next `flush` on; drop the named flows from the sample."""

    def set_share(self, limit_id: int, share: Enforcement) -> None:
        """Have this ready for when the daemon dies, where `on_failure` is `share`.

        Until the first call that is the limit's first `Enforcement`.
        """

    def flush(self, now_ns: int) -> None:
        """End of a tick: put in force what was programmed, and show that the daemon lives."""

    def counters(self) -> Mapping[str, int]:
        """Counts of what went wrong, since attach, by name (overflow, truncated, ...)."""

    def detach(self) -> None:
        """Remove every rule, queue, filter and map; safe to call twice."""
