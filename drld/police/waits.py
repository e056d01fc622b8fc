"""What operators see of a limit whose excess waits, whatever kind of traffic it is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

QUANTILES = (0.5, 0.95, 0.99)
"""Of access delays."""


class Delays(NamedTuple):
    """Access delays of a limit's items over the last minute: from arrival to their tokens."""

    items: int
    quantiles_ns: Sequence[int]
    """As `QUANTILES`, ns; 0 each without an item."""


class Waits(NamedTuple):
    """Items of a limit that wait, and that have waited."""

    waiting: int
    """Those that wait now; in shadow mode, those that would."""
    waited: int
    """Those that have had to wait since the daemon started, or would have had to."""
    delays: Delays
    clients: int | None
    """Clients with a bucket of their own; None: there is one for all."""


@runtime_checkable
class HasWaits(Protocol):
    """A datapath whose limits make items wait."""

    def waits(self, limit_id: int) -> Waits:
        """What waits at a limit.

        Raises:
            KeyError: there is no such limit.
        """
        ...
