"""What cannot wait for its round.

`FrequencyAnalysis` is the thesis' (4.2.3), asked after each request that was admitted here: a peer
is told of a key at once when it lacks `window` elements or more, and the last `window` of them came
within `threshold_ns` each on average. Listing 4.5 compares an interval with `>`, inserts first
where the text appends, and is off by one; the reading here gives the published figures. The rule
looks at how fast requests come, needs two constants tuned to the traffic, and births, which only
the queue has.

`Slack` looks at whether it matters: a limiter tells all peers when the tokens that it admitted and
has not told reach its part of what is left,

    untold >= max(1, sigma free / N)

It is asked after each request that was admitted here, and after each message, since `free` may have
shrunk. So all N limiters together hold back at most `sigma free` tokens, and less than one each
that does not count. As the bucket empties, `free` shrinks by a constant factor a round of messages:
there are of the order of N log(capacity / N) a fill, not one a request (compare Cormode,
Muthukrishnan and Yi, *Algorithms for distributed functional monitoring*, 2011). What does not
matter may wait for `patience_ns`, and many requests then take one message. Each limiter tells its
own cells itself, so nothing is passed on.
"""

from __future__ import annotations

from dataclasses import dataclass

from drld.requests.buckets.bucket import Bucket, News
from drld.requests.buckets.queue import MS


@dataclass(frozen=True, slots=True)
class FrequencyAnalysis:
    """Tell a peer what it lacks of a key whose requests come fast."""

    window: int
    """Requests: the thesis has capacity / N."""
    threshold_ns: int
    """The thesis has 2,400 ms."""

    def due(self, news: News, now_ns: int) -> bool:
        """Whether a peer is told these pending news of a key now."""
        if len(news) < self.window:
            return False
        births: list[tuple[int, int]] = sorted(news, reverse=True)
        since_ns = now_ns - births[self.window - 1][0] * MS
        return since_ns < self.window * self.threshold_ns


class Untold:
    """What this limiter admitted of a key and has not told.

    Most have one entry, and a dictionary for each would take as much as the key's row.
    """

    __slots__ = ("_entry", "_more", "_value", "since_ns", "tokens")

    def __init__(self, since_ns: int, tokens: int, news: News) -> None:
        """`news` has an entry at least."""
        self.since_ns = since_ns
        self.tokens = tokens
        self._more: News | None = None
        """All entries but one."""
        if len(news) == 1:
            ((self._entry, self._value),) = news.items()
        else:
            (self._entry, self._value), *more = news.items()
            self._more = dict(more)

    def add(self, tokens: int, news: News) -> None:
        """Something was admitted."""
        self.tokens += tokens
        for entry, value in news.items():
            if entry != self._entry:
                self._more = {**(self._more or {}), self._entry: self._value}
                self._more.pop(entry, None)
                self._entry = entry
            self._value = value

    @property
    def news(self) -> News:
        """All entries."""
        return {**(self._more or {}), self._entry: self._value}


@dataclass(frozen=True, slots=True)
class Slack:
    """Tell all peers when what they do not know would matter."""

    patience_ns: int
    """After this time they are told in any case."""
    sigma: float = 1.0

    def due(self, bucket: Bucket, untold: Untold, limiters: int, now_ns: int) -> bool:
        """Whether all peers are told now."""
        part = self.sigma * (bucket.policy.capacity - bucket.level(now_ns)) / limiters
        return untold.tokens >= (part if part > 1.0 else 1.0)
