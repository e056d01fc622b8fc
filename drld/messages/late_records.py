"""Records that hold for messages that arrive from then on, while earlier ones are still unread.

Settling a bucket at the present, while earlier messages are unread, would cap its tokens too early.
It would then delay a burst that conformed on arrival (SRTM 2021, section V-B). So a record waits
for the first arrival behind it, but no longer than a message may be charged before it is read.
"""

from __future__ import annotations

from collections.abc import Iterator

from drld.model import Enforcement
from drld.police.arrival_time import LATEST_NS


class LateRecords:
    """The records of one bucket that are not yet in force."""

    __slots__ = ("_last", "_pending")

    def __init__(self, first: Enforcement) -> None:
        """Begin with a record that is in force."""
        self._last = first
        self._pending: list[tuple[int, Enforcement]] = []
        """The records with their times: those of the last `LATEST_NS`, so a handful."""

    def __len__(self) -> int:
        """The number of records that wait."""
        return len(self._pending)

    def add(self, record: Enforcement, now_ns: int) -> None:
        """Add a record that holds from now on; a record that changes nothing is left out."""
        if record != self._last:
            self._last = record
            self._pending.append((now_ns, record))

    def until(self, now_ns: int) -> Iterator[tuple[int, Enforcement]]:
        """Take out the records of times up to this one, in their order."""
        pending = self._pending
        while pending and pending[0][0] <= now_ns:
            yield pending.pop(0)

    def all(self) -> Iterator[tuple[int, Enforcement]]:
        """Take out all records."""
        while self._pending:
            yield self._pending.pop(0)

    def overdue(self, now_ns: int) -> Iterator[tuple[int, Enforcement]]:
        """Take out the records before which no message can arrive any more."""
        return self.until(now_ns - LATEST_NS)
