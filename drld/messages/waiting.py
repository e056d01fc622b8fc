"""A limit whose excess waits, or the bucket of one client of such a limit."""

from __future__ import annotations

from collections.abc import Iterator

from drld.messages.counts import Counts
from drld.messages.gate import Fate, Gate, Held, Lane, Queue
from drld.messages.hold import Hold, Released
from drld.messages.late_records import LateRecords
from drld.model import Enforcement
from drld.mypyc import mypyc_attr

OPEN = Enforcement()
"""The record without a bucket: all messages that wait leave at once."""


@mypyc_attr(allow_interpreted_subclasses=True)
class WaitingBucket(Hold[Held]):
    """A bucket and its messages that wait (`drld.messages.gate.Stage` and `Queue`)."""

    __slots__ = ("_counts", "_gate", "_records")

    def __init__(self, gate: Gate, counts: Counts, record: Enforcement, now_ns: int) -> None:
        super().__init__(record, now_ns)
        self._gate = gate
        self._counts = counts
        self._records = LateRecords(record)

    def enter(self, lane: Lane, now_ns: int) -> Fate | Queue:  # noqa: ARG002 -- all are equal
        """See `Stage.enter`."""
        if not self._at_ease and self._records:
            self._apply(self._records.until(now_ns))
        return Fate.FORWARD if self.passes(now_ns) else self

    def wait(self, message: Held, arrived_ns: int) -> None:
        """See `Queue.wait`."""
        super().wait(message, arrived_ns)
        counts = self._counts
        counts.waited += 1
        counts.waiting += 1
        if len(self) == 1:
            # Messages that are read later wait behind it, so no bucket is filled too early.
            self._apply(self._records.all())
            self._gate.schedule(self)

    def release(self, now_ns: int, until_ns: int | None = None) -> Iterator[Released[Held]]:
        """See `Queue.release`."""
        counts = self._counts
        for released in super().release(now_ns, until_ns):
            counts.waiting -= 1
            counts.leave(released.waited_ns)
            yield released

    def withdraw_lost(self) -> None:
        """See `Queue.withdraw_lost`."""
        before = len(self)
        self.withdraw(lambda message: message.lane.lost)
        self._counts.waiting -= before - len(self)
        self._gate.schedule(self)

    def program(self, enforcement: Enforcement, now_ns: int) -> None:
        """Enforce this record from now on."""
        records = self._records
        records.add(enforcement, now_ns)
        if records:
            self._apply(records.all() if len(self) else records.overdue(now_ns))

    def open(self, now_ns: int) -> None:
        """Let all messages that wait leave, now and from now on."""
        self.program(OPEN, now_ns)

    def _ease(self) -> None:
        """See `Hold._ease`; while records wait, each message looks at them first."""
        super()._ease()
        self._at_ease = self._at_ease and not self._records

    def _apply(self, records: Iterator[tuple[int, Enforcement]]) -> None:
        """Put records into force."""
        changed = False
        for at_ns, record in records:
            super().program(record, at_ns)
            changed = True
        self._ease()
        if changed and len(self):
            self._gate.schedule(self)


@mypyc_attr(allow_interpreted_subclasses=True)
class WaitingClient(WaitingBucket):
    """The bucket of one client of a limit whose excess waits: it counts for its limit."""

    __slots__ = ()

    def enter(self, lane: Lane, now_ns: int) -> Fate | Queue:
        """See `Stage.enter`."""
        found = super().enter(lane, now_ns)
        if found is Fate.FORWARD:
            self._counts.at_once += self.take_at_once()
        return found
