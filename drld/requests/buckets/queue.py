"""The token-bucket queue: the thesis' proposal (4.1.2 and 4.2.1, listings 4.1 to 4.4).

An element is an admitted request. It has a birth, and a death: the time when its token is back. A
request conforms if fewer than `capacity` elements live.

    death    the birth, or the death of the element before if that is later, plus 1 / rate
    refill   remove the dead elements from the head
    merge    join elements by birth, and keep the larger death of each; then go along the queue and
             raise each death to that of the element before plus 1 / rate. All raised are news again

One limiter alone is exactly GCRA: the last death is the TAT. Among many limiters, each forgets an
element at its death, even if it has not heard of another limiter's elements yet. So with
`rate * interval >= 1` the queue has no long-run limit (data set E), and at a lower rate it is late
(data set D). The queue is no state-based CRDT: once heads are removed, deaths depend on the order
of merges.

Where the text is open or has a slip, this module reads it as follows:
- Listing 4.1 removes while `death > now`, which would keep the dead. Here: while `death <= now`.
- A refill happens at each request and after each merge. Otherwise a full queue never frees.
- Listing 4.2 keeps two elements of one birth in a delta state. With new dates, they arrive as two
  requests. Here they are one element in delta states, too.
- A number tells apart requests of one limiter in the same millisecond. Those of two limiters are
  one element after a merge, which loses tokens. The thesis accepts this loss.
- The first element of a merge keeps its death (listing 4.3 compares with the element before).
- Clocks are synchronised: births are identities, so they travel as times. News have lives in place
  of deaths, in 10**-9 tokens, rounded up: peers, and later this limiter, may have another rate.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import NamedTuple, TypeAlias

from drld.requests.buckets.bucket import Bucket, News, charged, checked
from drld.requests.buckets.policy import ADMITTED, NANO, Decision, Policy

MS = 1_000_000

Birth: TypeAlias = tuple[int, int]
"""The millisecond, and the number among requests of this millisecond at one limiter."""


class Element(NamedTuple):
    """An admitted request as it travels."""

    birth: Birth
    life: int
    """The refill from the birth's millisecond to the death, 10**-9 tokens."""


class Queue(Bucket):
    """A replica of the queue."""

    __slots__ = ("_births", "_deaths", "_dropped", "policy")

    def __init__(self, policy: Policy, origin: int) -> None:
        self.policy = policy
        self._births: list[Birth] = []
        """All births, the oldest first."""
        self._deaths: dict[Birth, int] = {}
        self._dropped = False
        """Whether elements were removed since the last call of `died`."""

    def _life(self, birth: Birth) -> int:
        """Return the refill from a birth's millisecond to the death, 10**-9 tokens, at least 1: a
        birth by a fast clock may come after the death that a higher rate gives."""
        ticks = self._deaths[birth] - birth[0] * MS * self.policy.rate
        return max(-(-ticks * NANO // self.policy.per_ns), 1)

    def _death(self, birth: Birth, life: int) -> int:
        """Return the death that ends this life, ticks."""
        return birth[0] * MS * self.policy.rate + life * self.policy.per_ns // NANO

    def _dead(self, now: int) -> int:
        """Return the number of dead elements at the head."""
        dead = 0
        for birth in self._births:
            if self._deaths[birth] > now:
                break
            dead += 1
        return dead

    def _refill(self, now: int) -> None:
        if dead := self._dead(now):
            for birth in self._births[:dead]:
                del self._deaths[birth]
            del self._births[:dead]
            self._dropped = True

    def take(self, now_ns: int, cost: int = 1) -> tuple[Decision, News]:
        """See `Bucket.take`: a request of n tokens is n elements."""
        self._refill(now_ns * self.policy.rate)
        return super().take(now_ns, cost)

    def decide(self, now_ns: int, cost: int = 1) -> Decision:
        """See `Bucket.decide`."""
        policy, now = self.policy, now_ns * self.policy.rate
        births, deaths = self._births, self._deaths
        dead = self._dead(now)
        over = len(births) - dead + checked(policy, cost) - policy.capacity
        if over <= 0:
            return ADMITTED
        return Decision(False, policy.wait_ns(deaths[births[dead + over - 1]] - now))

    def charge(self, now_ns: int, cost: int) -> News:
        """See `Bucket.charge`."""
        charged(cost)
        now = now_ns * self.policy.rate
        self._refill(now)
        births, deaths = self._births, self._deaths
        death = deaths[births[-1]] if births else now
        news: News = {}
        millisecond = now_ns // MS
        number = len(births) - bisect_left(births, (millisecond, 0))
        for _ in range(cost):
            death = max(death, now) + self.policy.per_ns
            birth = millisecond, number
            while birth in deaths:
                birth = millisecond, birth[1] + 1
            number = birth[1] + 1
            insort(births, birth)
            deaths[birth] = death
            news[birth] = self._life(birth)
        return news

    def reconfigure(self, policy: Policy, now_ns: int) -> None:
        """See `Bucket.reconfigure`: each element keeps the tokens that come before its death."""
        now, then = now_ns * self.policy.rate, now_ns * policy.rate
        self._refill(now)
        for birth, death in self._deaths.items():
            self._deaths[birth] = then - (now - death) * policy.per_ns // self.policy.per_ns
        self.policy = policy

    def delta(self, news: News, now_ns: int) -> tuple[Element, ...]:
        """See `Bucket.delta`."""
        return tuple(Element(birth, life) for birth, life in news.items())

    def merge(self, delta: tuple[Element, ...], now_ns: int) -> tuple[News, News]:
        """See `Bucket.merge`."""
        births, deaths, per_ns = self._births, self._deaths, self.policy.per_ns
        news: News = {}
        has: News = {}
        first = None
        for birth, life in delta:
            has[birth] = life
            death = self._death(birth, life)
            known = deaths.get(birth)
            if known is None:
                insort(births, birth)
            elif known >= death:
                continue
            deaths[birth], news[birth] = death, life
            first = birth if first is None or birth < first else first
        if first is not None:
            start = bisect_left(births, first)
            least = deaths[births[start - 1]] + per_ns if start else 0
            for birth in births[start:]:
                if deaths[birth] < least:
                    deaths[birth] = least
                    news[birth] = self._life(birth)
                least = deaths[birth] + per_ns
        self._refill(now_ns * self.policy.rate)
        return news, has

    def level(self, now_ns: int) -> float:
        """See `Bucket.level`."""
        if not self._births:
            return 0.0
        now = now_ns * self.policy.rate
        return max(self._deaths[self._births[-1]] - now, 0) / self.policy.per_ns

    def died(self) -> bool:
        """See `Bucket.died`."""
        dropped, self._dropped = self._dropped, False
        return dropped

    def forget(self, news: News, now_ns: int) -> None:
        """See `Bucket.forget`: the dead (listing 4.4)."""
        now = now_ns * self.policy.rate
        for birth in [it for it, life in news.items() if self._death(it, life) <= now]:
            del news[birth]

    def idle(self, now_ns: int) -> bool:
        """See `Bucket.idle`: also with elements that are dead, and not removed yet."""
        return self._dead(now_ns * self.policy.rate) == len(self._births)

    def everything(self) -> News:
        """See `Bucket.everything`."""
        return {birth: self._life(birth) for birth in self._births}

    @property
    def entries(self) -> int:
        """See `Bucket.entries`."""
        return len(self._births)
