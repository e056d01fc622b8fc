"""One limit at one broker: a token bucket, and the messages that wait for a token.

Semantics (SRTM 2021, section I-A; 2019, appendix A.1). The bucket starts full. A message that finds
its tokens leaves at once and takes them; a fraction of a token is none. Any other message waits
behind those that wait already. The queue has no end, and nothing is lost.

Time. A message is charged at its *arrival*, not when the daemon gets to read it (SRTM 2021, section
V-B), and one that has waited at the time when its tokens were there. So a daemon that runs late
delays messages, but it neither makes nor loses a token, and its buckets decide as they would
without delay.

`backlog` is the unfinished work of the queue with a fixed service time that the bucket is (SRTM
2021, appendix): the tokens that are missing to a full bucket, and those of the messages that wait.
Its maximum is the depth with which nothing would have waited. It does not depend on the depth.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from copy import copy
from typing import Generic, NamedTuple, TypeVar

from drld.model import Enforcement
from drld.police.token_bucket import TokenBucket

T = TypeVar("T")


class Released(NamedTuple, Generic[T]):
    """A message that has waited and may leave."""

    message: T
    waited_ns: int
    """Its access delay: from its arrival until its tokens were there."""


class _Waiting(NamedTuple, Generic[T]):
    message: T
    cost: int
    arrived_ns: int


class Hold(Generic[T]):
    """A bucket and its queue, first come, first served."""

    __slots__ = ("_bucket", "_due_ns", "_owed", "_ready", "_waiting", "backlog")

    def __init__(self, enforcement: Enforcement, now_ns: int) -> None:
        self._bucket = TokenBucket(enforcement, now_ns)
        self._waiting: deque[_Waiting[T]] = deque()
        """Those without tokens."""
        self._owed = 0
        """What they cost, tokens."""
        self._ready: deque[Released[T]] = deque()
        """Those that have been charged and not been taken out."""
        self._due_ns: int | None = None
        """When the first of those that wait gets its tokens; None: never, or none waits."""
        self.backlog = 0
        """The largest backlog that an arrival left behind, tokens; the reader sets it to 0."""

    def __len__(self) -> int:
        """The number of messages here."""
        return len(self._waiting) + len(self._ready)

    @property
    def due_ns(self) -> int | None:
        """When the next message may leave; None: none will."""
        return self._bucket.updated_ns if self._ready else self._due_ns

    def tokens(self, now_ns: int) -> int:
        """The whole tokens that the bucket would hold now; those that wait have taken none."""
        return tokens_at(self._bucket, now_ns)

    def full(self, now_ns: int) -> bool:
        """Whether it differs in nothing from a new one: the bucket is full now, and none waits."""
        return not len(self) and self.tokens(now_ns) == (self._bucket.depth or 0)

    def offer(self, message: T, cost: int, arrived_ns: int) -> bool:
        """Take in a message of `cost` tokens.

        Arrivals come in their order; one that is earlier than what has been charged already counts
        as of that time.

        Returns:
            Whether it leaves at once. Otherwise `release` returns it.
        """
        # What those that wait cost says whether there are some, in less time than their queue.
        if self._owed:
            self._charge(arrived_ns)
        bucket = self._bucket
        bucket.settle(arrived_ns)
        if self._owed or not bucket.conforms(cost):
            self._waiting.append(_Waiting(message, cost, arrived_ns))
            self._owed += cost
            if self._due_ns is None:
                self._find_due()
            leaves = False
        else:
            bucket.charge(cost)
            leaves = not self._ready
            if not leaves:  # It must not overtake those that have not been taken out.
                self._ready.append(Released(message, 0))
        if (work := self._work()) > self.backlog:
            self.backlog = work
        return leaves

    def release(self, now_ns: int) -> Iterator[Released[T]]:
        """Take out the messages that may leave by now, in their order."""
        self._charge(now_ns)
        while self._ready:
            yield self._ready.popleft()

    def program(self, enforcement: Enforcement, now_ns: int) -> None:
        """Have another rate and depth from now on. Shrinking clamps the tokens, growing adds none;
        without a depth all that wait may leave."""
        self._charge(now_ns)
        self._bucket.program(enforcement, now_ns)
        self._find_due()

    def _charge(self, now_ns: int) -> None:
        """Charge the messages that had their tokens by now, each at that time."""
        bucket, waiting = self._bucket, self._waiting
        while self._due_ns is not None and self._due_ns <= now_ns:
            first = waiting.popleft()
            bucket.settle(self._due_ns)
            bucket.charge(first.cost)
            self._owed -= first.cost
            self._ready.append(Released(first.message, max(self._due_ns - first.arrived_ns, 0)))
            self._find_due()

    def _find_due(self) -> None:
        self._due_ns = None
        if self._waiting:
            wait_ns = self._bucket.wait_ns(self._waiting[0].cost, 0)
            if wait_ns is not None:
                self._due_ns = self._bucket.updated_ns + wait_ns

    def _work(self) -> int:
        """The backlog at the time of the last arrival, tokens."""
        depth = self._bucket.depth
        if depth is None:
            return 0
        return depth - self._bucket.tokens + self._owed


def tokens_at(bucket: TokenBucket, now_ns: int) -> int:
    """The whole tokens that a bucket would hold now; it is not settled, for messages that are read
    later may have arrived before."""
    bucket = copy(bucket)
    bucket.settle(now_ns)
    return bucket.tokens
