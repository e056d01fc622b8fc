"""One limit with a bucket for each key: which bucket a request has, and its replica of all.

Buckets count whole requests, or bytes of a limit on bytes; all else counts tokens of the unit
(`drld.units`), so an `item` of a bucket is `scale` tokens.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from hashlib import blake2s
from math import gcd
from typing import NamedTuple

from drld.gossip.health.config_digest import canonical
from drld.model import NS_PER_S
from drld.policy import Keyed, Mode
from drld.policy import Policy as LimitPolicy
from drld.requests.buckets.bucket import Bucket
from drld.requests.buckets.counter import Counter
from drld.requests.buckets.delta_codec import Form
from drld.requests.buckets.ledger import Ledger
from drld.requests.buckets.policy import Policy
from drld.requests.buckets.queue import Queue
from drld.requests.buckets.replica import Replica
from drld.requests.buckets.spread import flat, least_informed
from drld.requests.buckets.urgency import FrequencyAnalysis, Slack
from drld.requests.keys import SEPARATOR, KeyHash
from drld.requests.quantity import quota
from drld.requests.spec import ITEM, REQUESTS, match_of
from drld.spec import LimitSpec

FORMS: Mapping[str, Form] = {"ledger": Form.LEDGER, "queue": Form.QUEUE, "counter": Form.COUNTER}
"""By the name of the kind of bucket."""
THRESHOLD_NS = 2_400_000_000
"""The thesis' threshold of frequency analysis (table 4.2)."""
REPEAT_ROUNDS = 4
"""After so many rounds, unacknowledged news are told again: two for the way there and back, where a
round is as long as the longest delay, and one for the acknowledgement's round."""
LATE_ROUNDS = 20
"""Rounds, beside one for each limiter, in which news come although five in a row were lost."""
COPIED_KEYS = 2500
"""In a round, for a peer that knows nothing: 64 kB of ledger cells, each with its key."""
MAX_PENDING = 8 * COPIED_KEYS
"""Keys of which a peer has news pending: some megabytes."""
ENTRIES = 32
"""Of a message: they fit a datagram, with as many acknowledgements as one has."""
TEXTS = 1024
"""Keys that came last, whose values and hashes are remembered."""


class Terms(NamedTuple):
    """What all limits of a limiter have in common."""

    origin: int
    """Incarnation of this limiter, 32 bits."""
    secret: bytes
    """Of the keys' hashes."""
    interval_ns: int
    """Of gossip."""
    members: int
    """Limiters of the fleet."""
    wall_ns: int = 0
    """What this host's clock of the day is ahead of the daemon's clock."""


class KeyedLimit:
    """The buckets of one limit at one limiter."""

    def __init__(self, limit: LimitSpec, terms: Terms) -> None:
        self._terms = terms
        self._hash = KeyHash(terms.secret)
        self._last: dict[bytes, int] = {}
        """Keys that came last, by their values; `TEXTS` at most."""
        self._before: dict[bytes, int] = {}
        """As many that came before them."""
        self.form = FORMS[_keyed(limit.policy).bucket]
        self._adopt(limit)
        self.replica = self._new_replica()

    def _adopt(self, limit: LimitSpec) -> None:
        keyed = _keyed(limit.policy)
        own = {
            self._hash(SEPARATOR.join([value.encode() for value in it.key])): it
            for it in keyed.overrides
        }
        self.limit = limit
        self._policy = bucket_policy(limit.policy)
        self._limits = {
            key: replace(limit, policy=replace(limit.policy, rate=it.rate, burst=it.burst))
            for key, it in own.items()
        }
        """Of the keys that have overrides."""
        self._policies = {key: bucket_policy(it.policy) for key, it in self._limits.items()}
        self.scale = scale_of(limit.policy)
        """Tokens of an item of the buckets."""
        self.paused = limit.policy.mode is Mode.PAUSE
        """Whether the buckets neither refuse nor are charged."""
        self.digest = self._digest()
        """What must be alike at two limiters that tell each other of keys."""

    def _new_replica(self) -> Replica:
        """One without knowledge and without peers."""
        interval_ns, members = self._terms.interval_ns, self._terms.members
        window = max(2, self._policy.capacity // members)
        ledger, queue = self.form is Form.LEDGER, self.form is Form.QUEUE
        return Replica(
            self._make,
            (),
            flat if ledger else least_informed,
            frequency=FrequencyAnalysis(window, THRESHOLD_NS) if queue else None,
            slack=Slack(members * interval_ns) if ledger else None,
            repeat_ns=REPEAT_ROUNDS * interval_ns,
            deferred=ledger,
            max_keys=_keyed(self.limit.policy).max_keys,
            max_pending=MAX_PENDING,
            copied_keys=COPIED_KEYS,
            most=ENTRIES,
        )

    def _make(self, key: Hashable) -> Bucket:
        policy, terms = self.policy_of(key), self._terms
        if self.form is Form.COUNTER:
            return Counter(policy, terms.origin)
        if self.form is Form.QUEUE:
            return Queue(policy, terms.origin)
        margin_ns = (terms.members + LATE_ROUNDS) * terms.interval_ns
        return Ledger(policy, terms.origin, terms.interval_ns, margin_ns)

    def fits(self, limit: LimitSpec, terms: Terms) -> bool:
        """Whether these buckets can go on under another configuration."""
        same = (
            _keyed(limit.policy).bucket == _keyed(self.limit.policy).bucket
            and limit.policy.unit == self.limit.policy.unit
            and match_of(limit).per == match_of(self.limit).per
        )
        fleet = (terms.origin, terms.secret) == (self._terms.origin, self._terms.secret)
        return same and fleet

    def reconfigure(self, limit: LimitSpec, terms: Terms, now_ns: int) -> None:
        """Have this policy from now on; levels stay, in tokens."""
        before = self._terms, self._policy, self._policies
        self._terms = terms
        self._adopt(limit)
        # A reload comes here twice: a second change would go through all rows at once.
        if (self._terms, self._policy, self._policies) != before:
            self.replica.reconfigure(self.policy_of, self.at(now_ns))
        self.replica.buckets.max_keys = _keyed(limit.policy).max_keys

    def at(self, now_ns: int) -> int:
        """A time as the buckets have it: the thesis' compare clocks of limiters, the ledger does
        not."""
        return now_ns if self.form is Form.LEDGER else now_ns + self._terms.wall_ns

    def _digest(self) -> int:
        """What the limiters must agree on to understand each other's keys, 16 bits.

        Not rates: limiters that a reload has not reached yet may go on talking.
        """
        policy = self.limit.policy
        settings = canonical(1, {
            "id": policy.id, "bucket": self.form.name, "unit": policy.unit.name,
            "per": ",".join(match_of(self.limit).per), "secret": self._terms.secret.hex(),
        })  # fmt: skip
        return int.from_bytes(blake2s(settings, digest_size=2).digest(), "big")

    def policy_of(self, key: Hashable) -> Policy:
        """The bucket's size of a key."""
        return self._policies.get(key, self._policy)  # type: ignore[call-overload, no-any-return]

    def key(self, values: bytes) -> int:
        """The key of these values (`KeyHash`). Those that came last are not hashed again."""
        key = self._last.get(values)
        if key is None:
            key = self._before.get(values)
            if key is None:
                key = self._hash(values)
            if len(self._last) >= TEXTS:
                self._before, self._last = self._last, {}
            self._last[values] = key
        return key

    def last_keys(self) -> dict[int, str]:
        """The keys that came last, `TEXTS` at least and twice as many at most, with their texts."""
        found = {**self._before, **self._last}
        return {key: it.replace(SEPARATOR, b", ").decode() for it, key in found.items()}

    def limit_of(self, key: int) -> LimitSpec:
        """The limit with the rate and burst of one key."""
        return self._limits.get(key, self.limit)


def _keyed(policy: LimitPolicy) -> Keyed:
    assert policy.keyed is not None
    return policy.keyed


def scale_of(policy: LimitPolicy) -> int:
    """Tokens of the unit that are one of a bucket: a request, or a byte."""
    return ITEM if policy.unit == REQUESTS else 1


def bucket_policy(policy: LimitPolicy) -> Policy:
    """The size of a key's bucket, in whole requests or bytes.

    The rate is what the operator wrote, as a fraction with small numbers: 10 requests in 60 s.
    """
    number, period_s = quota(policy.rate) if policy.unit == REQUESTS else (policy.rate, 1)
    per_ns = period_s * NS_PER_S
    divisor = gcd(number, per_ns)
    capacity = max(policy.burst // scale_of(policy), 1)
    return Policy(capacity, number // divisor, per_ns // divisor)
