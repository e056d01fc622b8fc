"""A limit whose excess waits, or the bucket of one client of such a limit."""

from __future__ import annotations

from collections.abc import Iterator

from drld.messages.counts import Counts
from drld.messages.gate import Fate, Gate, Held
from drld.messages.hold import Hold, tokens_at
from drld.messages.late_records import LateRecords
from drld.model import Enforcement

OPEN = Enforcement()
"""The record without a bucket: all messages that wait leave at once."""


class WaitingBucket:
    """A bucket and its messages that wait (`drld.messages.gate.Stage` and `Queue`)."""

    __slots__ = ("_counts", "_gate", "_hold", "_late", "_records")

    def __init__(self, gate: Gate, counts: Counts, record: Enforcement, now_ns: int) -> None:
        self._gate = gate
        self._counts = counts
        self._hold: Hold[Held] = Hold(record, now_ns)
        self._records = LateRecords(record)
        self._late = False
        """Whether records wait. To look at the records would cost each message a tenth more."""

    def __len__(self) -> int:
        """The number of messages that wait."""
        return len(self._hold)

    def offer(self, message: Held, now_ns: int) -> Fate:
        """See `Stage.offer`."""
        counts, hold = self._counts, self._hold
        if counts.recording is not None:
            counts.recording.add(now_ns)
        if self._late:
            self._apply(self._records.until(now_ns))
        if hold.offer(message, now_ns):
            counts.at_once += 1
            return Fate.FORWARD
        counts.waited += 1
        counts.waiting += 1
        if len(hold) == 1:
            # Messages that are read later wait behind it, so no bucket is filled too early.
            self._apply(self._records.all())
            self._gate.schedule(self)
        return Fate.WAIT

    @property
    def due_ns(self) -> int | None:
        """See `Queue.due_ns`."""
        return self._hold.due_ns

    def release(self, now_ns: int, until_ns: int) -> Iterator[tuple[Held, int]]:
        """See `Queue.release`."""
        counts = self._counts
        for message, waited_ns in self._hold.release(now_ns, until_ns):
            counts.waiting -= 1
            counts.leave(waited_ns)
            yield message, message.came_ns + waited_ns

    def program(self, record: Enforcement, now_ns: int) -> None:
        """Enforce this record from now on."""
        records = self._records
        records.add(record, now_ns)
        if records:
            self._apply(records.all() if len(self._hold) else records.overdue(now_ns))

    def open(self, now_ns: int) -> None:
        """Let all messages that wait leave, now and from now on."""
        self.program(OPEN, now_ns)

    def take_backlog(self) -> int:
        """The largest unfinished work since the last call, tokens (`Hold.take_backlog`)."""
        return self._hold.take_backlog()

    def take_saturated(self) -> bool:
        """Whether messages have waited ever since the last call (`Hold.take_saturated`)."""
        return self._hold.take_saturated()

    def full(self, now_ns: int) -> bool:
        """Whether the bucket is like a new one."""
        return self._hold.full(now_ns)

    def tokens(self, now_ns: int) -> int:
        """The whole tokens of the bucket; messages that wait have taken none."""
        return tokens_at(self._hold, now_ns)

    def _apply(self, records: Iterator[tuple[int, Enforcement]]) -> None:
        """Put records into force."""
        changed = False
        for at_ns, record in records:
            self._hold.program(record, at_ns)
            changed = True
        self._late = len(self._records) > 0
        if changed and len(self._hold):
            self._gate.schedule(self)
