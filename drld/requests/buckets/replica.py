"""All buckets of one limiter, and its messages to peers. Pure: time and randomness are arguments.

Without slack, every change by a message becomes news for all other peers (listing 3.3). The sender
gets the entries that it lacks, and none that it sent (4.2.1). With slack (`urgency`), a limiter
tells all peers its own cells, and passes no cell of a peer on. Rounds then only repeat lost news,
and tell returning peers everything. One limiter leads (`leading`): the others take its floors of
keys for theirs (`ledger_floor`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice
from random import Random
from typing import Any, TypeAlias

from drld.requests.buckets.bucket import Bucket, Key, News
from drld.requests.buckets.leading import Leading
from drld.requests.buckets.pending import Pending
from drld.requests.buckets.policy import ADMITTED, Decision, Policy
from drld.requests.buckets.spread import Spread, flat
from drld.requests.buckets.table import Table
from drld.requests.buckets.urgency import FrequencyAnalysis, Slack
from drld.requests.buckets.waiting_keys import WaitingKeys

Outgoing: TypeAlias = "list[tuple[str, Message]]"
"""Messages by peer."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message to a peer."""

    number: int
    """The number among the sender's messages to this peer, from 1 on; 0: it has nothing that is
    told again if it is lost."""
    deltas: Mapping[Key, Any]
    """The sender's delta of each key."""
    received: tuple[int, ...] = ()
    """The numbers of the receiver's messages that came to the sender since its last message."""


class Replica:
    """The buckets of one limiter."""

    def __init__(
        self,
        make: Callable[[Key], Bucket],
        peers: Collection[str],
        spread: Spread = flat,
        *,
        frequency: FrequencyAnalysis | None = None,
        slack: Slack | None = None,
        repeat_ns: int | None = None,
        deferred: bool = False,
        max_keys: int | None = None,
        max_pending: int | None = None,
        copied_keys: int | None = None,
        most: int | None = None,
        name: str | None = None,
    ) -> None:
        """A limiter without knowledge.

        Args:
            make: makes the bucket of a key that has none.
            peers: names of the other limiters.
            spread: chooses the peer of a round.
            frequency: the rule by which one peer is told at once; None: none.
            slack: the rule by which all peers are told at once; None: none.
            repeat_ns: the time after which unacknowledged news are sent again; None: never.
            deferred: whether urgent news wait for a call of `urgent`, so that all keys of a moment
                share one message to each peer.
            max_keys: the most keys with a bucket of their own (`table`); None: no bound.
            max_pending: the most keys with pending news for a peer. A peer that is silent for
                longer gets everything when it is heard again; None: no bound.
            copied_keys: the keys that a round tells a peer without knowledge; None: all.
            most: the most entries of a message, so that it takes few datagrams; None: no bound.
            name: this limiter's name among those of its peers; None: no limiter leads.
        """
        self.buckets = Table(make, max_keys)
        self.pending = {peer: Pending(repeat_ns, max_pending) for peer in peers}
        self._make = make
        self._max_pending = max_pending
        self._copied_keys = copied_keys
        self._most = most
        self._leading = Leading(name, peers)
        self._copies: dict[str, Iterator[Key]] = {}
        """The keys that remain for peers that are told everything."""
        self._spread = spread
        self._frequency = frequency
        self._slack = slack
        self._repeat_ns = repeat_ns
        self._deferred = deferred
        self._urgent: set[Key] = set()
        """The keys with urgent news for all peers."""
        self._waiting = WaitingKeys()
        """With slack: the keys with untold tokens."""
        self._owed: dict[str, list[int]] = {peer: [] for peer in peers}
        """The numbers of received messages that are not acknowledged yet."""

    def decide(self, key: Key, now_ns: int, cost: int = 1) -> Decision:
        """Return the decision that `take` would make; nothing changes."""
        return self.buckets.look(key).decide(now_ns, cost)

    def level(self, key: Key, now_ns: int) -> float:
        """Return the tokens in use of a key's bucket, as `Bucket.level`."""
        return self.buckets.look(key).level(now_ns)

    def take(self, key: Key, now_ns: int, cost: int = 1) -> tuple[Decision, Outgoing]:
        """Decide a request; return also the messages that cannot wait."""
        row = self.buckets.awake.get(key)
        if row is not None:
            if row.spend(now_ns, cost):
                return ADMITTED, []
        elif self._slack is not None and self.pending:
            row = self.buckets.wake(key, now_ns, cost, len(self.pending) + 1)
            if row is not None:
                if row.since_ns == now_ns:
                    self._waiting.add(key, now_ns)
                return ADMITTED, []
        row = row or self.buckets.row(key, now_ns)
        decision, news = row.take(now_ns, cost)
        # A shared bucket has no news.
        return decision, self._admitted(key, row, news, now_ns) if news else []

    def charge(self, key: Key, now_ns: int, cost: int) -> Outgoing:
        """Take tokens without a decision (`Bucket.charge`); return the urgent messages."""
        return self.charge_row(key, self.buckets.row(key, now_ns), now_ns, cost)

    def charge_row(self, key: Key, row: Bucket, now_ns: int, cost: int) -> Outgoing:
        """Do as `charge`, with `row` the bucket that `Table.row` returns for the key now.

        A request under several limits is decided under each, and then charged to all. A cost that
        is known only afterwards is charged without a decision, and may leave a debt.
        """
        if row.spend(now_ns, cost):
            return []
        news = row.charge(now_ns, cost)
        return self._admitted(key, row, news, now_ns) if news else []

    def _admitted(self, key: Key, row: Bucket, news: News, now_ns: int) -> Outgoing:
        if not self.pending:
            row.told()
            return []
        if self._slack is not None:
            if row.since_ns == now_ns:
                self._waiting.add(key, now_ns)
            return self._speak(key, row, now_ns)
        for one in self.pending.values():
            one.add(key, news)
        if self._frequency is None:
            return []
        # A peer that is behind is told everything later.
        waiting = [(peer, one.news[key]) for peer, one in self.pending.items() if key in one.news]
        due = [(peer, {key: its}) for peer, its in waiting if self._frequency.due(its, now_ns)]
        return self._messages(due, now_ns)

    def _speak(self, key: Key, row: Bucket, now_ns: int) -> Outgoing:
        """Return messages to all peers about a key with untold tokens, if these matter."""
        if key in self._urgent or not row.due(now_ns, len(self.pending) + 1):
            return []
        if self._deferred:
            self._urgent.add(key)
            return []
        return self._tell_all([key], now_ns)

    @property
    def pressing(self) -> bool:
        """Whether urgent messages wait, where they are deferred."""
        return bool(self._urgent)

    def urgent(self, now_ns: int) -> Outgoing:
        """Return the urgent messages, where they are deferred.

        A limiter holds back at most the slack and the tokens that it admits between two calls.
        """
        keys, self._urgent = self._urgent, set()
        return self._tell_all(keys, now_ns) if keys else []

    def _tell_all(self, keys: Iterable[Key], now_ns: int, before_ns: int | None = None) -> Outgoing:
        """Return messages to all peers with the untold tokens of keys, or only of those keys whose
        tokens have been untold since `before_ns` or longer."""
        rows: dict[Key, Bucket] = {}

        def untold() -> Iterator[tuple[Key, News]]:
            for key in keys:
                row = self.buckets.get(key)
                if row is None or not row.untold:
                    continue
                if before_ns is None or row.since_ns <= before_ns:
                    rows[key] = row
                    yield key, row.untold_news()
                    self.buckets.told(key)

        messages: Outgoing = []
        for told in self._split(untold()):
            if deltas := self._deltas(told, now_ns, rows):
                messages += [
                    (peer, Message(one.told(told, now_ns), deltas, self._acknowledged(peer)))
                    for peer, one in self.pending.items()
                ]
            rows.clear()
        return messages

    def _split(self, news: Iterable[tuple[Key, News]]) -> Iterator[dict[Key, News]]:
        """Return copies of these news, in parts of one message each."""
        part: dict[Key, News] = {}
        entries = 0
        for key, its in news:
            if part and self._most is not None and entries + len(its) > self._most:
                yield part
                part, entries = {}, 0
            part[key] = dict(its)
            entries += len(its)
        if part:
            yield part

    def round(self, now_ns: int, rng: Random) -> Outgoing:
        """Return the messages of a round: pending news for one peer, and acknowledgements that are
        due."""
        self._copy()
        for one in self.pending.values():
            one.repeat(now_ns)
        messages = self._tell_floors(now_ns)
        if self._slack is not None:
            before_ns = now_ns - self._slack.patience_ns
            messages += self._tell_all(self._waiting.take(before_ns), now_ns, before_ns)
        peer = self._spread(self.pending, rng)
        if peer is not None:
            messages += self._messages([(peer, self.pending[peer].news)], now_ns)
        messages += [
            (peer, Message(0, {}, self._acknowledged(peer)))
            for peer, owed in self._owed.items() if owed
        ]  # fmt: skip
        return messages

    def _tell_floors(self, now_ns: int) -> Outgoing:
        """Return messages to all peers with the floors of this round, if this limiter leads.

        A lost one is not told again before its next turn, so it needs no number. Each is computed
        once: at 30 limiters with 5,000 busy keys, floors for each peer took 190 ms of a round.
        """
        floors = dict(self._leading.next_floors(self.buckets.awake))
        peers = self.pending if (deltas := self._deltas(floors, now_ns, {})) else ()
        return [(peer, Message(0, deltas, self._acknowledged(peer))) for peer in peers]

    def _messages(self, news_of: Iterable[tuple[str, Mapping[Key, News]]], now_ns: int) -> Outgoing:
        """Return messages with these news of keys; none for a peer if its news no longer matter."""
        messages: Outgoing = []
        for peer, some in news_of:
            for told in [*self._split(some.items())]:
                number = self.pending[peer].told(told, now_ns)
                if deltas := self._deltas(told, now_ns, {}):
                    messages.append((peer, Message(number, deltas, self._acknowledged(peer))))
                else:
                    self.pending[peer].forget(number)
        return messages

    def _deltas(
        self, told: Mapping[Key, News], now_ns: int, rows: Mapping[Key, Bucket]
    ) -> dict[Key, Any]:
        """Return these news as they travel, without the keys whose news no longer matter.

        `rows` are buckets that the caller has looked up, so that rows at rest are read once.
        """
        found = {}
        for key, entries in told.items():
            bucket = rows.get(key) or self.buckets.get(key) or self._make(key)
            if delta := bucket.delta(entries, now_ns):
                found[key] = delta
        return found

    def _acknowledged(self, peer: str) -> tuple[int, ...]:
        received, self._owed[peer] = tuple(self._owed[peer]), []
        return received

    def receive(self, sender: str, message: Message, now_ns: int) -> Outgoing:
        """Merge a peer's message; return the messages that cannot wait.

        A message of a limiter that is no peer, or no longer, changes nothing.
        """
        if sender not in self.pending:
            return []
        messages: Outgoing = []
        if self.pending[sender].behind:
            self.pending[sender].behind = False
            self._copies[sender] = iter(self.buckets)
        for number in message.received:
            self.pending[sender].acknowledge(number)
        if message.number and self._repeat_ns is not None:
            self._owed[sender].append(message.number)
        leads = self._leading.leader == sender
        for key, delta in message.deltas.items():
            bucket = self.buckets.own(key, now_ns)
            if bucket is None:
                self.buckets.unkept += 1
                continue
            rest = bucket.follow(delta, now_ns) if leads else delta
            news, has = bucket.merge(rest, now_ns)
            if news and self._slack is None:
                for one in self.pending.values():
                    one.add(key, news)
            self.pending[sender].has(key, has)
            if bucket.died():
                self._forget(key, bucket, now_ns)
            if bucket.idle(now_ns):
                self.buckets.drop(key)
            elif self._slack is not None and bucket.untold:
                messages += self._speak(key, bucket, now_ns)
        return messages

    def _forget(self, key: Key, bucket: Bucket, now_ns: int) -> None:
        """Remove the entries of a key that no peer needs from all pending news."""
        for one in self.pending.values():
            if (news := one.news.get(key)) is not None:
                bucket.forget(news, now_ns)
                if not news:
                    del one.news[key]

    def collect(self, now_ns: int) -> None:
        """Remove all buckets that decide as new ones would."""
        for key in [key for key, bucket in self.buckets.items() if bucket.idle(now_ns)]:
            self.buckets.drop(key)

    def sweep(self, now_ns: int, rows: int) -> None:
        """Look at this many buckets: drained ones leave, and others come to rest."""
        self.buckets.sweep(now_ns, rows)

    def returned(self, peer: str) -> None:
        """Tell a peer everything, because it has begun another life and knows nothing."""
        self.pending[peer] = Pending(self._repeat_ns, self._max_pending)
        self._owed[peer] = []
        self._copies[peer] = iter(self.buckets)
        if self._copied_keys is None:
            self._copy()

    def _copy(self) -> None:
        """Make the next keys pending for peers that are told everything."""
        for peer, keys in [*self._copies.items()]:
            one, room = self.pending[peer], self._copied_keys
            if self._max_pending is not None:
                left = max(self._max_pending - len(one.news), 0)
                room = left if room is None else min(room, left)
            some = [*islice(keys, room)]
            for key in some:
                if (bucket := self.buckets.get(key)) is not None:
                    one.add(key, bucket.everything())
            if room is None or len(some) < room:
                del self._copies[peer]

    def set_peers(self, peers: Collection[str]) -> None:
        """Use these peers from now on; new ones are told everything."""
        for gone in self.pending.keys() - {*peers}:
            del self.pending[gone], self._owed[gone]
            self._copies.pop(gone, None)
        for peer in peers:
            if peer not in self.pending:
                self.returned(peer)
        self._leading.meet(self.pending)
        self.buckets.halt()

    def set_pace(
        self, frequency: FrequencyAnalysis | None, slack: Slack | None, repeat_ns: int | None
    ) -> None:
        """Use these rules from now on, as in the constructor, because the fleet has changed."""
        self._frequency, self._slack, self._repeat_ns = frequency, slack, repeat_ns
        for one in self.pending.values():
            one.repeat_ns = repeat_ns

    def reconfigure(self, policy: Callable[[Key], Policy], now_ns: int) -> None:
        """Use these policies of keys from now on; levels stay the same number of tokens.

        `make` must follow, because it makes the buckets of other keys. The call is short: each
        bucket changes when a request next needs it, or when it is swept.
        """
        self.buckets.reconfigure(policy, now_ns)

    def busiest(self, number: int, now_ns: int) -> list[tuple[Key, float]]:
        """Return the keys with the most tokens in use now, and these tokens: the fullest first.

        Tokens in use are those that the fleet admitted, as far as this limiter knows, and that have
        not come back at the key's rate. Keys whose buckets are at rest are left out.
        """
        levels = ((key, bucket.level(now_ns)) for key, bucket in self.buckets.active())
        return nlargest(number, (it for it in levels if it[1] > 0), key=operator.itemgetter(1))

    @property
    def settled(self) -> bool:
        """Whether no peer needs any news."""
        waiting = (self.buckets.get(key) for key in {*self._waiting})
        return (
            not any(row is not None and row.untold for row in waiting)
            and not self._copies
            and all(one.settled for one in self.pending.values())
        )
