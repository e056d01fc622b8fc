"""A limit whose excess is dropped.

It is the policer that packets have, with any allocator, or the bucket of one client. The flows of
the policer's sample are connections, by numbers that no client chooses.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from drld.messages.counts import Counts
from drld.messages.gate import Fate, Lane
from drld.messages.late_records import LateRecords
from drld.messages.spec import ITEM
from drld.model import Enforcement, FlowId, Measurement
from drld.police.policer import Policer
from drld.police.token_bucket import TokenBucket
from drld.policy import Policy


class DroppingBucket:
    """A policer of messages (`drld.messages.gate.Stage`)."""

    __slots__ = ("_counts", "_records", "_rng", "policer")

    def __init__(
        self, policy: Policy, counts: Counts, record: Enforcement, now_ns: int, rng: Random
    ) -> None:
        """Begin with a full bucket; `rng` decides random drops."""
        self._counts = counts
        self._rng = rng
        self._records = LateRecords(record)
        self.policer = Policer(policy, record, now_ns)

    def enter(self, lane: Lane, now_ns: int) -> Fate:
        """See `Stage.enter`; no message waits."""
        counts = self._counts
        for at_ns, record in self._records.until(now_ns):
            self.policer.program(record, (), at_ns)
        if self.policer.police(lane.number, ITEM, now_ns, self._rng):
            counts.at_once += 1
            return Fate.FORWARD
        counts.dropped += 1
        return Fate.DROP

    def program(self, record: Enforcement, now_ns: int, evict: Iterable[FlowId] = ()) -> None:
        """Enforce this record from now on, and remove the named flows from the sample."""
        self.policer.sample.evict(evict)
        self._records.add(record, now_ns)
        for at_ns, due in self._records.overdue(now_ns):
            self.policer.program(due, (), at_ns)

    def open(self, now_ns: int) -> None:
        """See `WaitingBucket.open`: no message waits."""

    def take_backlog(self) -> int:
        """See `WaitingBucket.take_backlog`: no message waits."""
        return 0

    def read(self, now_ns: int) -> Measurement:
        """The counts since the last read, with the sample."""
        self._counts.read(now_ns)
        return self.policer.read(now_ns)


class DroppingClient:
    """The bucket of one client (`drld.messages.gate.Stage`)."""

    __slots__ = ("_bucket", "_counts", "_records")

    def __init__(self, counts: Counts, record: Enforcement, now_ns: int) -> None:
        self._counts = counts
        self._bucket = TokenBucket(record, now_ns)
        self._records = LateRecords(record)

    def __len__(self) -> int:
        """See `WaitingBucket`: no message waits."""
        return 0

    def enter(self, lane: Lane, now_ns: int) -> Fate:  # noqa: ARG002 -- it has its own bucket
        """See `Stage.enter`; no message waits."""
        counts, bucket = self._counts, self._bucket
        for at_ns, record in self._records.until(now_ns):
            bucket.program(record, at_ns)
        if bucket.take(ITEM, now_ns):
            counts.at_once += 1
            return Fate.FORWARD
        counts.dropped += 1
        return Fate.DROP

    def program(self, record: Enforcement, now_ns: int) -> None:
        """Enforce this record from now on."""
        self._records.add(record, now_ns)
        for at_ns, due in self._records.overdue(now_ns):
            self._bucket.program(due, at_ns)

    def tokens_at(self, now_ns: int) -> int:
        """See `Bucket.tokens_at`."""
        return self._bucket.tokens_at(now_ns)

    def full(self, now_ns: int) -> bool:
        """See `WaitingBucket.full`."""
        return self.tokens_at(now_ns) == (self._bucket.depth or 0)
