"""The token-bucket counter: the thesis' baseline (section 3.1, listings 3.1 to 3.4).

The state of a key has three parts: the tokens that each limiter admitted (a grow-only counter), the
*limit*, which is the most tokens that may have been admitted so far, and the time at which the
limit was last refilled. A request conforms if the sum of the counters and its cost are at most the
limit.

    refill   limit += (now - refilled) rate;  limit = min(limit, sum + capacity);  refilled = now
    merge    counters by maximum; the larger limit, with its time of refill

There are two variants. `literal` is listing 3.1, which caps each refill, and not the bucket:
`limit += min((now - refilled) rate, capacity)`. So it is no token bucket: a user who sends 2 c
requests at half the rate may then send nearly 3 c at once. The default caps the bucket alone, so
time pays any debt. A limiter that knows only a part of the counters then caps too low, for good:
that is the safe side.

The text is read as follows. The limit is a real number, and exact here. A refused request is not
counted. Clocks are synchronised, so the time of refill travels as it is. The limit travels in
10**-9 tokens, rounded down, as peers may have another rate during a reload. A changed limit alone
is no news; otherwise limiters under load would never be silent, as they are after 10 s in figure
5.6. Nothing is ever removed.
"""

from __future__ import annotations

from typing import NamedTuple

from drld.requests.buckets.bucket import Bucket, News, charged, checked
from drld.requests.buckets.policy import ADMITTED, NANO, Decision, Policy


class CounterDelta(NamedTuple):
    """The whole state of a key as it travels."""

    counts: tuple[tuple[int, int], ...]
    """The tokens by origin."""
    limit: int
    """The most tokens that may have been admitted until the refill, 10**-9 tokens."""
    refilled_ns: int


class Counter(Bucket):
    """A replica of the counter."""

    __slots__ = ("_counts", "_limit", "_literal", "_refilled_ns", "_used", "origin", "policy")

    def __init__(self, policy: Policy, origin: int, *, literal: bool = False) -> None:
        self.policy = policy
        self.origin = origin
        self._literal = literal
        self._counts: dict[int, int] = {}
        self._used = 0
        """The sum of the counts."""
        self._limit = policy.depth
        """The limit in ticks, like all amounts here: a token is `per_ns`."""
        self._refilled_ns: int | None = None

    def _refilled(self, now_ns: int) -> int:
        """Return the limit after a refill."""
        policy, limit = self.policy, self._limit
        refill = 0
        if self._refilled_ns is not None and now_ns > self._refilled_ns:
            refill = (now_ns - self._refilled_ns) * policy.rate
        if self._literal:
            return limit + min(refill, policy.depth)
        return min(limit + refill, self._used * policy.per_ns + policy.depth)

    def _refill(self, now_ns: int) -> None:
        self._limit = self._refilled(now_ns)
        self._refilled_ns = max(now_ns, self._refilled_ns or now_ns)

    def take(self, now_ns: int, cost: int = 1) -> tuple[Decision, News]:
        """See `Bucket.take`: every request refills, also a refused one."""
        self._refill(now_ns)
        return super().take(now_ns, cost)

    def decide(self, now_ns: int, cost: int = 1) -> Decision:
        """See `Bucket.decide`."""
        used = (self._used + checked(self.policy, cost)) * self.policy.per_ns
        lacking = used - self._refilled(now_ns)
        return ADMITTED if lacking <= 0 else Decision(False, self.policy.wait_ns(lacking))

    def charge(self, now_ns: int, cost: int) -> News:
        """See `Bucket.charge`."""
        self._counts[self.origin] = self._counts.get(self.origin, 0) + charged(cost)
        self._refill(now_ns)
        self._used += cost
        return {self.origin: self._counts[self.origin]}

    def reconfigure(self, policy: Policy, now_ns: int) -> None:
        """See `Bucket.reconfigure`."""
        self._refill(now_ns)
        lacking = self._used * self.policy.per_ns + self.policy.depth - self._limit
        taken = -(-lacking * policy.per_ns // self.policy.per_ns)
        self._limit = self._used * policy.per_ns + policy.depth - taken
        self.policy = policy

    def delta(self, news: News, now_ns: int) -> CounterDelta:
        """See `Bucket.delta`."""
        refilled_ns = 0 if self._refilled_ns is None else self._refilled_ns
        limit = self._limit * NANO // self.policy.per_ns
        return CounterDelta(tuple(self._counts.items()), limit, refilled_ns)

    def merge(self, delta: CounterDelta, now_ns: int) -> tuple[News, News]:
        """See `Bucket.merge`."""
        news: News = {}
        for origin, count in delta.counts:
            known = self._counts.get(origin, 0)
            if count > known:
                self._used += count - known
                self._counts[origin] = news[origin] = count
        limit = delta.limit * self.policy.per_ns // NANO
        if limit > self._limit or self._refilled_ns is None:
            self._limit, self._refilled_ns = limit, delta.refilled_ns
        return news, dict(delta.counts)

    def level(self, now_ns: int) -> float:
        """See `Bucket.level`."""
        room = self._refilled(now_ns) / self.policy.per_ns - self._used
        return self.policy.capacity - min(room, self.policy.capacity)

    def idle(self, now_ns: int) -> bool:
        """See `Bucket.idle`: never, as the maximum would swallow a counter that starts at zero."""
        return False

    def everything(self) -> News:
        """See `Bucket.everything`."""
        return dict(self._counts)

    @property
    def entries(self) -> int:
        """See `Bucket.entries`."""
        return len(self._counts)
