"""The rules for news that cannot wait for their round.

`FrequencyAnalysis` is the thesis' rule (4.2.3). The replica applies it after each request that was
admitted here. A peer is told of a key at once when it lacks `window` elements or more, and the last
`window` of them came within `threshold_ns` each on average. Listing 4.5 compares an interval with
`>`, inserts first where the text appends, and is off by one; the reading here gives the published
figures. The rule looks at how fast requests come. It needs two constants tuned to the traffic, and
births, which only the queue has.

`Slack` looks at whether the news matter. A limiter tells all peers when the tokens that it admitted
and has not told reach its part of the tokens that are left:

    untold >= max(1, free / N)

The replica applies it (`Bucket.due`) after each message, since `free` may have shrunk, and after
each request that was admitted here, unless an earlier test has shown that it need not
(`Bucket.spend`). So all N limiters together hold back at most `free` tokens, and less than one
token each that does not count. As the bucket empties, `free` shrinks by a constant factor with each
round of messages. So a fill takes of the order of N log(capacity / N) messages, not one for each
request (compare Cormode, Muthukrishnan and Yi, *Algorithms for distributed functional monitoring*,
2011). News that do not matter may wait for `patience_ns`, and many requests then share one message.
Each limiter tells its own cells itself, so no limiter passes news on.
"""

from __future__ import annotations

from dataclasses import dataclass

from drld.requests.buckets.bucket import News
from drld.requests.buckets.queue import MS


@dataclass(frozen=True, slots=True)
class FrequencyAnalysis:
    """Tells a peer at once of a key whose requests come fast."""

    window: int
    """Requests that are looked at: the thesis uses capacity / N."""
    threshold_ns: int
    """The longest mean interval of fast requests, ns: the thesis uses 2,400 ms."""

    def due(self, news: News, now_ns: int) -> bool:
        """Return whether a peer must be told these pending news of a key now."""
        if len(news) < self.window:
            return False
        births: list[tuple[int, int]] = sorted(news, reverse=True)
        since_ns = now_ns - births[self.window - 1][0] * MS
        return since_ns < self.window * self.threshold_ns


@dataclass(frozen=True, slots=True)
class Slack:
    """Tells all peers at once when the tokens that they do not know of would matter."""

    patience_ns: int
    """The longest time that news may wait, ns."""
