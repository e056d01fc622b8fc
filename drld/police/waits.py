"""The figures of a limit whose excess waits, for operators, for any kind of traffic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

QUANTILES = (0.5, 0.95, 0.99)
"""The quantiles of access delays that operators see."""


class Delays(NamedTuple):
    """Access delays of a limit's items over the last minute: from arrival to their tokens."""

    items: int
    quantiles_ns: Sequence[int]
    """The access delays at `QUANTILES`, ns; 0 if no item passed."""


class Waits(NamedTuple):
    """Items of a limit that wait, and that have waited."""

    waiting: int
    """Items that wait now; in shadow mode, those that would wait."""
    waited: int
    """Items that waited since the daemon started; in shadow mode, items that would have waited."""
    delays: Delays
    clients: int | None
    """Clients with a bucket of their own; None: all share one bucket."""


@runtime_checkable
class HasWaits(Protocol):
    """A datapath whose limits make items wait."""

    def waits(self, limit_id: int) -> Waits:
        """The figures of a limit's queue.

        Raises:
            KeyError: there is no such limit.
        """
        ...
