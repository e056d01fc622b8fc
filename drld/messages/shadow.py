"""A limit that holds nothing. It counts the messages that would have waited, and for how long.

Its bucket may be in debt. The debt stands for the queue that would be there: a message would leave
once its part of the debt is paid (`drld.messages.hold` says the same of messages that do wait). The
debt has no bound, because the queue has none. So after a flood, later messages would have waited
for a long time, too. A reload with another rate or burst forgets the debt.
"""

from __future__ import annotations

from collections.abc import Iterable

from drld.messages.counts import Counts
from drld.messages.gate import Fate, Lane
from drld.messages.hold import COST
from drld.messages.late_records import LateRecords
from drld.messages.spec import ITEM
from drld.model import NS_PER_S, Enforcement
from drld.police.token_bucket import TokenBucket

NEVER_NS = 2**62
"""The delay of a message that would not pass at this rate: longer than any other."""


def would_wait(buckets: Iterable[ShadowBucket], record: Enforcement, now_ns: int) -> int:
    """The number of messages that would wait for these buckets, all of which enforce this record.

    A limit has up to 100,000 buckets of clients, and no message passes meanwhile. So it takes
    neither a call nor a copy for each.
    """
    rate, depth = record.fill_rate, (record.depth or 0) * NS_PER_S
    waiting = 0
    for it in buckets:
        bucket = it.bucket
        debt = bucket.missing - depth
        if debt > 0:
            if now_ns > bucket.updated_ns:
                debt -= rate * (now_ns - bucket.updated_ns)
            if debt > 0:
                waiting -= -debt // COST
    return waiting


class ShadowBucket:
    """A limit in shadow mode (`drld.messages.gate.Stage`)."""

    __slots__ = ("_backlog", "_counts", "_records", "bucket")

    def __init__(self, counts: Counts, record: Enforcement, now_ns: int) -> None:
        self._counts = counts
        self.bucket = TokenBucket(record, now_ns)
        self._records = LateRecords(record)
        self._backlog = 0

    def enter(self, lane: Lane, now_ns: int) -> Fate:  # noqa: ARG002 -- all are equal
        """See `Stage.enter`; every message passes."""
        counts, bucket = self._counts, self.bucket
        for at_ns, record in self._records.until(now_ns):
            bucket.program(record, at_ns)
        bucket.settle(now_ns)
        wait_ns = bucket.wait_ns(ITEM, 0)
        bucket.charge(ITEM)
        if wait_ns == 0:
            counts.at_once += 1
        else:
            counts.waited += 1
            counts.leave(NEVER_NS if wait_ns is None else wait_ns)
        if bucket.depth is not None:
            self._backlog = max(self._backlog, bucket.depth - bucket.tokens)
        return Fate.FORWARD

    def program(self, record: Enforcement, now_ns: int) -> None:
        """Enforce this record from now on."""
        self._records.add(record, now_ns)
        for at_ns, due in self._records.overdue(now_ns):
            self.bucket.program(due, at_ns)

    def open(self, now_ns: int) -> None:
        """See `WaitingBucket.open`: no message waits."""

    def forget(self, record: Enforcement, now_ns: int) -> None:
        """Begin again, with a full bucket."""
        self.bucket = TokenBucket(record, now_ns)
        self._records = LateRecords(record)

    def take_backlog(self) -> int:
        """See `WaitingBucket.take_backlog`."""
        backlog, self._backlog = self._backlog, 0
        return backlog

    def take_saturated(self) -> bool:
        """See `WaitingBucket.take_saturated`: no message waits, and no client is held back."""
        return False

    def __len__(self) -> int:
        """See `WaitingBucket`: no message waits."""
        return 0

    def would_wait(self, now_ns: int) -> int:
        """The number of messages that would wait."""
        return max(-(self.tokens_at(now_ns) // ITEM), 0)

    def tokens_at(self, now_ns: int) -> int:
        """See `Bucket.tokens_at`.

        Messages that would wait have taken theirs, so the number may be less than 0.
        """
        return self.bucket.tokens_at(now_ns)

    def full(self, now_ns: int) -> bool:
        """See `WaitingBucket.full`."""
        return self.tokens_at(now_ns) == (self.bucket.depth or 0)
