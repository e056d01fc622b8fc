"""The log of publishers and counters, and how it is judged. Pure.

Counters subscribe at the brokers themselves. A message is *confirmed* when its publisher has the
broker's receipt for it: PUBACK of MQTT's QoS 1, PONG behind a message of NATS. A publisher that has
lost its connection sends again what is not confirmed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from drld.model import NS_PER_S
from testbed.messages.real.oracle import needed_ns

Key = tuple[int, int]
"""A publisher's number, and the message's among those of this publisher."""


class Arrival(NamedTuple):
    """A message that has come to a counter."""

    publisher: int
    number: int
    scheduled_ns: int
    at_ns: int


@dataclass
class Log:
    """The messages that publishers sent and counters received."""

    sent: Counter[Key] = field(default_factory=Counter)
    """The number of times that each message was sent."""
    confirmed: set[Key] = field(default_factory=set)
    came: list[Arrival] = field(default_factory=list)

    def of(self, publishers: Iterable[int]) -> Log:
        """The part of some publishers."""
        those = set(publishers)
        return Log(
            Counter({key: count for key, count in self.sent.items() if key[0] in those}),
            {key for key in self.confirmed if key[0] in those},
            [it for it in self.came if it.publisher in those],
        )

    def beyond(self, rate: int, burst: int, since_ns: int = 0) -> float:
        """The most messages beyond b + r dt + 1 that came in any time dt, from a time on."""
        came = sorted(it.at_ns for it in self.came if it.at_ns >= since_ns)
        return needed_ns(came, rate, burst) * rate / NS_PER_S

    @property
    def lost(self) -> int:
        """Messages that were confirmed, and never came."""
        return len(self.confirmed - {(it.publisher, it.number) for it in self.came})

    @property
    def doubled(self) -> int:
        """Arrivals of messages beyond the number of times that they were sent."""
        came = Counter((it.publisher, it.number) for it in self.came)
        return (came - self.sent).total()

    @property
    def overtaken(self) -> int:
        """Messages that came for the first time behind a later one of their publisher."""
        latest: defaultdict[int, int] = defaultdict(lambda: -1)
        seen: set[Key] = set()
        count = 0
        for it in sorted(self.came, key=lambda it: it.at_ns):
            key = it.publisher, it.number
            if key not in seen:
                seen.add(key)
                count += it.number < latest[it.publisher]
                latest[it.publisher] = max(latest[it.publisher], it.number)
        return count

    def delays_s(self, begin_ns: int = 0, end_ns: int | None = None) -> list[float]:
        """Delays of the messages that were scheduled then and sent once, sorted."""
        return sorted(
            (it.at_ns - it.scheduled_ns) / NS_PER_S
            for it in self.came
            if begin_ns <= it.scheduled_ns
            and (end_ns is None or it.scheduled_ns < end_ns)
            and self.sent[it.publisher, it.number] == 1
        )


def quantile(found: list[float], part: float) -> float:
    """A quantile of sorted values."""
    return found[min(int(part * len(found)), len(found) - 1)]
