"""A limit with a bucket for each client: `match.client` says by which property.

Each client has the whole rate and burst. Nothing is divided: a client that publishes through
brokers of several limiters has a bucket at each. So limiters need not know of each other.

A full bucket for which no message waits is like a new one, so the limit may forget it. This happens
to a few buckets each time that one is added. Strangers choose their names, so the number of buckets
has a bound. Clients beyond it share one bucket, and no client gains by that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Protocol, TypeAlias, cast

from drld.messages.counts import Counts
from drld.messages.gate import Fate, Lane, Queue, Stage
from drld.messages.shadow import ShadowBucket, would_wait
from drld.messages.spec import ByClient
from drld.messages.waiting import OPEN
from drld.model import Enforcement

MOST = 100_000
"""The most buckets of one limit: some 60 MB."""
_LOOKED_AT = 4
"""Buckets that may be forgotten for each new one: more than one, so that their number falls."""


class Bucket(Stage, Protocol):
    """The bucket of one client; its class depends on the excess and mode of the limit."""

    def __len__(self) -> int:
        """The number of messages that wait."""
        ...

    def program(self, record: Enforcement, now_ns: int) -> None:
        """Enforce this record from now on."""

    def tokens_at(self, now_ns: int) -> int:
        """The whole tokens that the bucket would hold now."""
        ...

    def full(self, now_ns: int) -> bool:
        """Whether the bucket is like a new one."""
        ...


Make: TypeAlias = Callable[[Counts, Enforcement, int], Bucket]
"""Makes a bucket from the counts, the record and the time in ns."""


class PerClient:
    """A limit with a bucket for each client (`drld.messages.gate.Stage`)."""

    __slots__ = (
        "_buckets",
        "_by",
        "_counts",
        "_make",
        "_most",
        "_record",
        "_shared",
        "overflowed",
    )

    def __init__(
        self, by: ByClient, make: Make, counts: Counts, record: Enforcement, most: int
    ) -> None:
        """Begin without buckets.

        Args:
            by: the property by which clients are known.
            make: makes a client's bucket.
            counts: the counts of the limit.
            record: the record of each client's bucket.
            most: the most buckets, without the one that further clients share.
        """
        self._by = by
        self._make = make
        self._counts = counts
        self._record = record
        self._most = most
        self._buckets: dict[str, Bucket] = {}
        """The clients' buckets by their keys; the newest are the last."""
        self._shared: Bucket | None = None
        """The bucket that the clients beyond the bound share."""
        self.overflowed = 0
        """The number of messages of clients that share a bucket."""

    def __len__(self) -> int:
        """The number of clients with a bucket of their own."""
        return len(self._buckets)

    def enter(self, lane: Lane, now_ns: int) -> Fate | Queue:
        """See `Stage.enter`."""
        key = key_of(lane, self._by)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._new(key, now_ns)
        return bucket.enter(lane, now_ns)

    def would_wait(self, now_ns: int) -> int:
        """The number of messages that would wait in shadow mode; 0 in any other mode."""
        if self._make is not ShadowBucket:
            return 0
        buckets = cast("Iterable[ShadowBucket]", self._all())
        return would_wait(buckets, self._record, now_ns)

    def of(self, lane: Lane) -> Bucket | None:
        """The bucket of a connection's client; None: the client has none yet."""
        return self._buckets.get(key_of(lane, self._by))

    def _new(self, key: str, now_ns: int) -> Bucket:
        for other, bucket in list(islice(self._buckets.items(), _LOOKED_AT)):
            del self._buckets[other]
            if not bucket.full(now_ns):
                self._buckets[other] = bucket
        if len(self._buckets) < self._most:
            bucket = self._buckets[key] = self._make(self._counts, self._record, now_ns)
            return bucket
        self.overflowed += 1
        if self._shared is None:
            self._shared = self._make(self._counts, self._record, now_ns)
        return self._shared

    def _all(self) -> Iterator[Bucket]:
        yield from self._buckets.values()
        if self._shared is not None:
            yield self._shared

    def set_record(self, record: Enforcement, now_ns: int) -> None:
        """Enforce this record for each client from now on."""
        if self._make is ShadowBucket and record != self._record:
            # The debts are those of another rate (`drld.messages.shadow`).
            self._buckets.clear()
            self._shared = None
        self._record = record
        for bucket in self._all():
            bucket.program(record, now_ns)

    def open(self, now_ns: int) -> None:
        """See `WaitingBucket.open`."""
        self.set_record(OPEN, now_ns)


def key_of(lane: Lane, by: ByClient) -> str:
    """The key of a connection's client: its identifier or user, or else its address."""
    client = lane.client
    if client is not None:
        if by is ByClient.ID and client.id:
            return client.id
        if by is ByClient.USER and client.user:
            return client.user
    # No client can take such a name (`drld.messages.frame.kept`).
    return lane.address if by is ByClient.ADDRESS else f"\0{lane.address}"
