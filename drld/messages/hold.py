"""One limit at one broker: a token bucket, and the messages that wait for a token.

Semantics (SRTM 2021, section I-A; 2019, appendix A.1). The bucket starts full. A message that finds
its tokens leaves at once and takes them; a fraction of a token is none. Any other message waits
behind those that wait already. The queue has no end, and nothing is lost.

Time. A message is charged at its *arrival*, not when the daemon reads it (SRTM 2021, section V-B).
A message that has waited is charged at the time when its tokens were there. So a daemon that runs
late delays messages. But it neither makes nor loses a token, and its buckets decide as they would
without delay. Only a daemon that has not looked for more than `LATEST_NS` gives those that wait no
more than a full bucket. So never more than b + r (dt + l) + 1 messages leave in any time dt, with a
lateness l of at most `LATEST_NS`.

The *backlog* is the unfinished work of the queue with a fixed service time that the bucket is (SRTM
2021, appendix): the tokens that the bucket lacks, and those of the messages that wait. With its
maximum as the depth, no message would have waited. It does not depend on the depth.

Cost. Most messages find their tokens, and with 10,000 limits almost each line of memory that is
read costs a cache miss. So the path of such a message reads as few as it can. A `Hold` is a bucket
itself, instead of having one, and it counts these messages itself. A limit that no message waits
for has no queues.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from drld.messages.spec import ITEM
from drld.model import NS_PER_S, Enforcement
from drld.mypyc import mypyc_attr
from drld.police.arrival_time import LATEST_NS
from drld.police.token_bucket import TokenBucket

T = TypeVar("T")

COST = ITEM * NS_PER_S
"""The tokens that a message takes, in units of 10**-9 tokens."""
_NO_QUEUE: deque[Any] = deque()
"""The queue of all limits that no message waits for; it stays empty. A deque has some 600 bytes."""


class Released(NamedTuple, Generic[T]):
    """A message that has waited and may leave."""

    message: T
    waited_ns: int
    """Access delay of the message: the time from its arrival until its tokens were there."""


class _Waiting(NamedTuple, Generic[T]):
    message: T
    arrived_ns: int


@mypyc_attr(allow_interpreted_subclasses=True)
class _NearSlots(TokenBucket):
    """The attributes of a `Hold` that each message reads.

    CPython puts the slots of a base class before those of a subclass. So these are neighbours in
    memory.
    """

    __slots__ = ("_at_ease", "_most", "at_once")


@mypyc_attr(allow_interpreted_subclasses=True)
class Hold(_NearSlots, Generic[T]):
    """A bucket and its queue, first come, first served."""

    __slots__ = ("_due_ns", "_emptied", "_idle", "_ready", "_waiting")

    def __init__(self, enforcement: Enforcement, now_ns: int) -> None:
        super().__init__(enforcement, now_ns)
        self._at_ease = bool(self._depth)
        """Whether a message passes if it finds the bucket full: there is a bucket, its depth is
        above 0, and no message is here."""
        self.at_once = 0
        """The number of messages that have passed when they came, since the last `take_at_once`."""
        self._idle = True
        """Whether no message is here."""
        self._emptied = True
        """Whether no message was here at a moment since the last `take_saturated`."""
        self._most = 0
        """The largest backlog since the last `take_backlog`, 10**-9 tokens."""
        self._waiting: deque[_Waiting[T]] = _NO_QUEUE
        """Messages without tokens."""
        self._ready: deque[Released[T]] = _NO_QUEUE
        """Messages that have been charged and not been taken out."""
        self._due_ns: int | None = None
        """The time at which the first message without tokens gets them; None: never, or there is
        none."""

    def __len__(self) -> int:
        """The number of messages here."""
        return len(self._waiting) + len(self._ready)

    @property
    def due_ns(self) -> int | None:
        """The time at which the next message may leave; None: none will."""
        return self.updated_ns if self._ready else self._due_ns

    def full(self, now_ns: int) -> bool:
        """Whether this is like a new one: the bucket is full now, and no message waits."""
        return self._idle and self.tokens_at(now_ns) == (self.depth or 0)

    def take_backlog(self) -> int:
        """The largest backlog that an arrival has left behind since the last call, tokens."""
        most, self._most = self._most, 0
        return -(-most // NS_PER_S)

    def take_at_once(self) -> int:
        """The number of messages that have passed when they came, since the last call."""
        taken, self.at_once = self.at_once, 0
        return taken

    def take_saturated(self) -> bool:
        """Whether messages have been here at every moment since the last call."""
        saturated, self._emptied = not self._emptied, self._idle
        return saturated

    def offer(self, message: T, arrived_ns: int) -> bool:
        """Take in a message.

        Arrivals come in their order. One that is earlier than what has been charged already counts
        at that time.

        Returns whether it leaves at once. Otherwise `release` returns it.
        """
        if self.passes(arrived_ns):
            return True
        self.wait(message, arrived_ns)
        return False

    def passes(self, arrived_ns: int) -> bool:
        """Take in a message if it leaves at once; return whether it does."""
        if not self._at_ease:
            if not (self._idle and self.take(ITEM, arrived_ns)):
                return False
        else:
            self.settle(arrived_ns)
            if not self.missing:
                # Most buckets are full. One number for all of them is one object fewer for each.
                self.missing = COST
            elif not self.take(ITEM, arrived_ns):
                return False
        if self.missing > self._most:  # noqa: PLR1730 -- one call fewer for each message
            self._most = self.missing
        self.at_once += 1
        return True

    def wait(self, message: T, arrived_ns: int) -> None:
        """Take in a message that has arrived now and does not leave at once."""
        if self._idle:
            self._idle = self._at_ease = False
            self._waiting, self._ready = deque(), deque()
        self._charge(arrived_ns, arrived_ns)
        if self._waiting or not self.take(ITEM, arrived_ns):
            self.settle(arrived_ns)
            self._waiting.append(_Waiting(message, arrived_ns))
            if self._due_ns is None:
                self._find_due()
        else:  # It must not overtake those that have not been taken out.
            self._ready.append(Released(message, 0))
        if self._depth is not None:
            self._most = max(self._most, self.missing + len(self._waiting) * COST)

    def release(self, now_ns: int, until_ns: int | None = None) -> Iterator[Released[T]]:
        """Take out the messages that may leave by now, in their order.

        `until_ns`, an earlier time: only those that had their tokens by then.
        """
        self._charge(now_ns, now_ns if until_ns is None else until_ns)
        while self._ready:
            released = self._ready.popleft()
            self._rest()
            yield released

    def withdraw(self, gone: Callable[[T], bool]) -> None:
        """Throw away the messages of which `gone` is true; those that still waited use no token."""
        self._waiting = deque(it for it in self._waiting if not gone(it.message))
        self._ready = deque(it for it in self._ready if not gone(it.message))
        self._find_due()
        self._rest()

    def _rest(self) -> None:
        """Have no queues if no message is here."""
        if not self._ready and not self._waiting:
            self._idle = self._emptied = True
            self._waiting = self._ready = _NO_QUEUE
            self._ease()

    def _ease(self) -> None:
        """Find out whether a message passes if it finds the bucket full."""
        self._at_ease = bool(self._depth) and self._idle

    def program(self, enforcement: Enforcement, now_ns: int) -> None:
        """Enforce another rate and depth from now on.

        Shrinking clamps the tokens, and growing adds none. Without a depth, all messages that wait
        may leave.
        """
        self._charge(now_ns, now_ns)
        super().program(enforcement, now_ns)
        self._ease()
        self._find_due()

    def _charge(self, now_ns: int, until_ns: int) -> None:
        """Charge the messages that had their tokens until a time, each at that time."""
        waiting = self._waiting
        if self._due_ns is not None and self._due_ns < now_ns - LATEST_NS:
            # The daemon has stood still. Tokens above the depth are lost, because otherwise all
            # messages that wait would leave at once.
            self.settle(now_ns)
            self._find_due()
        while self._due_ns is not None and self._due_ns <= until_ns:
            first = waiting.popleft()
            self.settle(self._due_ns)
            self.charge(ITEM)
            self._ready.append(Released(first.message, max(self._due_ns - first.arrived_ns, 0)))
            self._find_due()

    def _find_due(self) -> None:
        self._due_ns = None
        if self._waiting:
            wait_ns = self.wait_ns(ITEM, 0)
            if wait_ns is not None:
                self._due_ns = self.updated_ns + wait_ns
