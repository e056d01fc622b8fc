"""Records that take effect on messages that arrive from then on, though others are read later.

A bucket that is settled at the present takes the messages before it that have not been read yet for
later ones: it would be filled to its depth once, and not in the pauses between them, and so delay a
burst that conformed (SRTM 2021, section V-B). A record waits for the first arrival behind it
therefore; but no longer than a message may be charged before it is read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from drld.model import Enforcement
from drld.police.arrival_time import LATEST_NS


class LateRecords:
    """The records of one bucket that are not in force yet."""

    __slots__ = ("_last", "_pending")

    def __init__(self, first: Enforcement) -> None:
        """`first`: the record that is in force."""
        self._last = first
        self._pending: deque[tuple[int, Enforcement]] = deque()

    def __len__(self) -> int:
        """The number of records that wait."""
        return len(self._pending)

    def add(self, record: Enforcement, now_ns: int) -> None:
        """Have a record from now on; one that changes nothing is left out."""
        if record != self._last:
            self._last = record
            self._pending.append((now_ns, record))

    def until(self, now_ns: int) -> Iterator[tuple[int, Enforcement]]:
        """Take out those of times up to this one, in their order."""
        pending = self._pending
        while pending and pending[0][0] <= now_ns:
            yield pending.popleft()

    def all(self) -> Iterator[tuple[int, Enforcement]]:
        """Take out all."""
        while self._pending:
            yield self._pending.popleft()

    def overdue(self, now_ns: int) -> Iterator[tuple[int, Enforcement]]:
        """Take out those before which no message can arrive any more."""
        return self.until(now_ns - LATEST_NS)
