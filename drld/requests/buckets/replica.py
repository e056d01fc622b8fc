"""All buckets of one limiter, and what goes to its peers. Pure: time and randomness are arguments.

Without slack, everything that a message changed becomes news for all other peers (listing 3.3). Its
sender gets what it lacks, but nothing back that it sent (4.2.1). With slack (`urgency`), a limiter
tells all peers its own cells, and passes nothing on; rounds only repeat what got lost, and give
those that return what they missed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from heapq import nlargest
from operator import itemgetter
from random import Random
from typing import Any, TypeAlias

from drld.requests.buckets.bucket import Bucket, News
from drld.requests.buckets.pending import Pending
from drld.requests.buckets.policy import Decision, Policy
from drld.requests.buckets.spread import Spread, flat
from drld.requests.buckets.urgency import FrequencyAnalysis, Slack, Untold

Outgoing: TypeAlias = "list[tuple[str, Message]]"
"""Messages by peer."""


@dataclass(frozen=True, slots=True)
class Message:
    """What goes to one peer at once."""

    number: int
    """Among the sender's messages to this peer, from 1 on; 0: it only acknowledges."""
    deltas: Mapping[Hashable, Any]
    """What the sender says of each key."""
    received: tuple[int, ...] = ()
    """Numbers of the receiver's messages that the sender has received since its last message."""


class Replica:
    """The buckets of one limiter."""

    def __init__(
        self,
        make: Callable[[Hashable], Bucket],
        peers: Collection[str],
        spread: Spread = flat,
        *,
        frequency: FrequencyAnalysis | None = None,
        slack: Slack | None = None,
        repeat_ns: int | None = None,
    ) -> None:
        """A limiter without knowledge.

        Args:
            make: makes the bucket of a key that has none.
            peers: names of the other limiters.
            spread: chooses the peer of a round.
            frequency: what tells a peer at once, if anything.
            slack: what tells all peers at once, if anything.
            repeat_ns: after this time, unacknowledged news are told again; None: never.
        """
        self.buckets: dict[Hashable, Bucket] = {}
        self.pending = {peer: Pending(repeat_ns) for peer in peers}
        self._make = make
        self._spread = spread
        self._frequency = frequency
        self._slack = slack
        self._repeat_ns = repeat_ns
        self._untold: dict[Hashable, Untold] = {}
        """With slack: what no peer was told yet, by key."""
        self._owed: dict[str, list[int]] = {peer: [] for peer in peers}
        """Numbers of received messages that were not acknowledged yet."""

    def bucket(self, key: Hashable) -> Bucket:
        """A key's bucket, made if there is none."""
        bucket = self.buckets.get(key)
        if bucket is None:
            bucket = self.buckets[key] = self._make(key)
        return bucket

    def decide(self, key: Hashable, now_ns: int, cost: int = 1) -> Decision:
        """What `take` would decide; it changes nothing and makes no bucket."""
        return self._known(key).decide(now_ns, cost)

    def level(self, key: Hashable, now_ns: int) -> float:
        """Tokens of a key's bucket in use, as `Bucket.level`."""
        bucket = self.buckets.get(key)
        return 0.0 if bucket is None else bucket.level(now_ns)

    def take(self, key: Hashable, now_ns: int, cost: int = 1) -> tuple[Decision, Outgoing]:
        """Decide a request; return also the messages that cannot wait."""
        decision, news = self.bucket(key).take(now_ns, cost)
        return decision, self._admitted(key, news, now_ns, cost) if decision.admitted else []

    def charge(self, key: Hashable, now_ns: int, cost: int) -> Outgoing:
        """Take tokens in any case (`Bucket.charge`); return the messages that cannot wait.

        A request of several limits is decided under each, and then charged to all. A cost that is
        known afterwards is charged alone, and may leave a debt.
        """
        return self._admitted(key, self.bucket(key).charge(now_ns, cost), now_ns, cost)

    def _admitted(self, key: Hashable, news: News, now_ns: int, cost: int) -> Outgoing:
        if self._slack is not None:
            untold = self._untold.setdefault(key, Untold(now_ns))
            untold.tokens += cost
            untold.news |= news
            return self._speak(key, now_ns)
        for one in self.pending.values():
            one.add(key, news)
        if self._frequency is None:
            return []
        due = [
            (peer, {key: one.news[key]})
            for peer, one in self.pending.items() if self._frequency.due(one.news[key], now_ns)
        ]  # fmt: skip
        return self._messages(due, now_ns)

    def _speak(self, key: Hashable, now_ns: int) -> Outgoing:
        """Messages to all peers, if what they do not know of a key matters."""
        untold, bucket = self._untold[key], self.bucket(key)
        assert self._slack is not None
        if not self._slack.due(bucket, untold, len(self.pending) + 1, now_ns):
            return []
        return self._tell_all([key], now_ns)

    def _tell_all(self, keys: Collection[Hashable], now_ns: int) -> Outgoing:
        news = {key: self._untold.pop(key).news for key in keys}
        return self._messages([(peer, news) for peer in self.pending], now_ns)

    def round(self, now_ns: int, rng: Random) -> Outgoing:
        """The messages of a round: pending news for one peer, and acknowledgements that are due."""
        for one in self.pending.values():
            one.repeat(now_ns)
        messages: Outgoing = []
        if self._slack is not None:
            before_ns = now_ns - self._slack.patience_ns
            late = [key for key, untold in self._untold.items() if untold.since_ns <= before_ns]
            messages += self._tell_all(late, now_ns) if late else []
        peer = self._spread(self.pending, rng)
        if peer is not None:
            messages += self._messages([(peer, self.pending[peer].news)], now_ns)
        messages += [
            (peer, Message(0, {}, self._acknowledged(peer)))
            for peer, owed in self._owed.items() if owed
        ]  # fmt: skip
        return messages

    def _messages(
        self, news_of: Iterable[tuple[str, Mapping[Hashable, News]]], now_ns: int
    ) -> Outgoing:
        """Messages with these news of keys; a peer whose news do not matter any more gets none."""
        messages: Outgoing = []
        for peer, some in news_of:
            number, news = self.pending[peer].tell(some, now_ns)
            deltas = {
                key: delta
                for key, entries in news.items()
                if (delta := self._known(key).delta(entries, now_ns))
            }
            if deltas:
                messages.append((peer, Message(number, deltas, self._acknowledged(peer))))
            else:
                self.pending[peer].acknowledge(number)
        return messages

    def _known(self, key: Hashable) -> Bucket:
        """A key's bucket, which may have been removed while its news were pending."""
        return self.buckets.get(key) or self._make(key)

    def _acknowledged(self, peer: str) -> tuple[int, ...]:
        received, self._owed[peer] = tuple(self._owed[peer]), []
        return received

    def receive(self, sender: str, message: Message, now_ns: int) -> Outgoing:
        """Merge a peer's message; return the messages that cannot wait.

        A message of a limiter that is no peer (any more) changes nothing.
        """
        messages: Outgoing = []
        if sender not in self.pending:
            return messages
        for number in message.received:
            self.pending[sender].acknowledge(number)
        if message.number and self._repeat_ns is not None:
            self._owed[sender].append(message.number)
        for key, delta in message.deltas.items():
            bucket = self.bucket(key)
            news, has = bucket.merge(delta, now_ns)
            if news and self._slack is None:
                for one in self.pending.values():
                    one.add(key, news)
            self.pending[sender].has(key, has)
            if bucket.died():
                self._forget(key, bucket, now_ns)
            if bucket.idle(now_ns):
                self._remove(key)
            elif key in self._untold:
                messages += self._speak(key, now_ns)
        return messages

    def _forget(self, key: Hashable, bucket: Bucket, now_ns: int) -> None:
        """Some entries of a key need not be told any more."""
        for one in self.pending.values():
            news = one.news.get(key)
            if news is not None:
                bucket.forget(news, now_ns)
                if not news:
                    del one.news[key]

    def collect(self, now_ns: int) -> None:
        """Remove buckets that decide as new ones would."""
        for key in [key for key, bucket in self.buckets.items() if bucket.idle(now_ns)]:
            self._remove(key)

    def _remove(self, key: Hashable) -> None:
        """Remove a bucket; its pending news may still travel."""
        del self.buckets[key]
        self._untold.pop(key, None)

    def returned(self, peer: str) -> None:
        """A peer has begun another life, and knows nothing: tell it everything."""
        self.pending[peer] = Pending(self._repeat_ns)
        self._owed[peer] = []
        for key, bucket in self.buckets.items():
            self.pending[peer].add(key, bucket.everything())

    def set_peers(self, peers: Collection[str]) -> None:
        """These are the peers from now on; new ones are told everything."""
        for gone in self.pending.keys() - {*peers}:
            del self.pending[gone], self._owed[gone]
        for peer in peers:
            if peer not in self.pending:
                self.returned(peer)

    def reconfigure(self, policy: Callable[[Hashable], Policy], now_ns: int) -> None:
        """Keys have these policies from now on; levels stay, in tokens.

        `make` must follow: it makes the buckets of keys that are not here yet.
        """
        for key, bucket in self.buckets.items():
            if (wanted := policy(key)) != bucket.policy:
                bucket.reconfigure(wanted, now_ns)

    def busiest(self, number: int, now_ns: int) -> list[tuple[Hashable, float]]:
        """The keys with the most tokens in use now, and how many: the fullest first.

        In use are tokens that the fleet admitted, as far as this limiter knows, and that have not
        come back at the key's rate. A key below its rate has next to none, however many requests
        it makes.
        """
        levels = ((key, bucket.level(now_ns)) for key, bucket in self.buckets.items())
        return nlargest(number, (it for it in levels if it[1] > 0), key=itemgetter(1))

    @property
    def settled(self) -> bool:
        """Whether no peer needs to be told anything."""
        return not self._untold and all(one.settled for one in self.pending.values())
