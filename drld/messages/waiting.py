"""A limit whose excess waits, or the bucket of one client of such a limit."""

from __future__ import annotations

from collections.abc import Iterator

from drld.messages.counts import Counts
from drld.messages.full_buckets import NEVER_NS, FullBuckets
from drld.messages.gate import Fate, Gate, Held, Lane, Queue
from drld.messages.hold import COST, Hold, Released
from drld.messages.late_records import LateRecords
from drld.model import Enforcement

OPEN = Enforcement()
"""The record without a bucket: all messages that wait leave at once."""

MOST_FOUND_FULL = 16
"""Messages that find the bucket full, after which it leaves the next ones to the gate. At once, two
messages that always come together would have it change twice for each pair."""


class WaitingBucket(Hold[Held]):
    """A bucket and its messages that wait (`drld.messages.gate.Stage` and `Queue`).

    If it has a place among `FullBuckets`, either the gate or the bucket decides. What the gate has
    decided is taken in before anything else is done.
    """

    __slots__ = (
        *("_behind", "_counts", "_found_full", "_gate", "_places", "_records", "_told"),
        "place",
    )

    def __init__(self, gate: Gate, counts: Counts, record: Enforcement, now_ns: int) -> None:
        super().__init__(record, now_ns)
        self._gate = gate
        self._counts = counts
        self._records = LateRecords(record)
        self._places: FullBuckets | None = None
        """Where the bucket has a place; None: nowhere."""
        self.place = 0
        self._told = False
        """Whether the gate decides: it knows from when the bucket is full."""
        self._found_full = 0
        """Messages that have found the bucket full since the gate last decided."""
        self._behind = False
        """Whether `enter` has more to do first: the gate decides, or records wait."""

    def enter(self, lane: Lane, now_ns: int) -> Fate | Queue:  # noqa: ARG002 -- all are equal
        """See `Stage.enter`."""
        if self._behind:
            if self._told:
                self._decide()
            else:
                self._apply(self._records.until(now_ns))
        if not self.passes(now_ns):
            return self
        self._counts.at_once += 1
        if self.missing == COST and self._places is not None:
            self._found_full += 1
            if self._found_full > MOST_FOUND_FULL:
                self._tell()
        return Fate.FORWARD

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
            self._decide()
            self._apply(records.all() if len(self) else records.overdue(now_ns))

    def open(self, now_ns: int) -> None:
        """Let all messages that wait leave, now and from now on."""
        self.program(OPEN, now_ns)

    def move(self, places: FullBuckets) -> None:
        """Have a place here from now on."""
        self._decide()
        self._places, self.place = places, places.add(self)
        self._tell()

    def take_in(self) -> None:
        """Take in the messages that the gate has let pass."""
        places, place = self._places, self.place
        if places is not None and (passed := places.passed[place]):
            places.passed[place] = 0
            self._counts.at_once += passed
            # The last one has found the bucket full, as all of them have.
            self.updated_ns = places.full_ns[place] - places.refill_ns[place]
            self.missing = COST
            self._most = max(self._most, COST)

    def take_backlog(self) -> int:
        """See `Hold.take_backlog`."""
        self.take_in()
        return super().take_backlog()

    def tokens_at(self, now_ns: int) -> int:
        """See `TokenBucket.tokens_at`."""
        self.take_in()
        return super().tokens_at(now_ns)

    def _decide(self) -> None:
        """Decide about messages from now on, and not the gate."""
        self.take_in()
        if self._told and self._places is not None:
            self._places.full_ns[self.place] = NEVER_NS
            self._told = self._behind = False

    def _tell(self) -> None:
        """Have the gate decide from now on, if the bucket will be full at a known time."""
        places, place, rate = self._places, self.place, self._fill_rate
        if self._told or places is None or self._records or not self._idle:
            return
        if rate > 0 and self._depth:
            places.refill_ns[place] = min(-(-COST // rate), NEVER_NS)
            places.full_ns[place] = min(self.updated_ns - (-self.missing // rate), NEVER_NS)
            self._told = self._behind = True
            self._found_full = 0

    def _apply(self, records: Iterator[tuple[int, Enforcement]]) -> None:
        """Put records into force."""
        changed = False
        for at_ns, record in records:
            super().program(record, at_ns)
            changed = True
        self._behind = self._told or bool(self._records)
        if changed and len(self):
            self._gate.schedule(self)
