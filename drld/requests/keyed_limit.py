"""One limit with a bucket for each key: the policy of each key, and this limiter's replica of all.

Buckets count whole requests, or bytes for a limit on bytes. All other code counts tokens of the
unit (`drld.units`), so one item of a bucket is `scale` tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2s
from math import gcd
from typing import NamedTuple

from drld.client.protocol.long_value import shortened
from drld.gossip.health.config_digest import canonical
from drld.model import NS_PER_S
from drld.policy import Keyed, Mode
from drld.policy import Policy as LimitPolicy
from drld.requests.buckets.bucket import Bucket, Key
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
"""The form of the buckets, by the name in the configuration."""
_FORM_VERSIONS: Mapping[Form, int] = {Form.LEDGER: 1, Form.QUEUE: 2, Form.COUNTER: 2}
"""The versions of what deltas mean. Those of version 1 of queue and counter were in ticks of the
sender's rate; such a peer is refused for its settings, and not misunderstood."""
THRESHOLD_NS = 2_400_000_000
"""The thesis' threshold of frequency analysis (table 4.2)."""
REPEAT_ROUNDS = 4
"""Unacknowledged news are repeated after this many rounds: two for the way there and back, where a
round is as long as the longest delay, and the others for the round of the acknowledgement."""
LATE_ROUNDS = 20
"""Rounds, beside one for each limiter, in which news arrive although five in a row were lost."""
COPIED_KEYS = 2500
"""Keys that a peer without knowledge is told in a round: 64 kB of ledger cells with their keys."""
MAX_PENDING = 8 * COPIED_KEYS
"""The most keys with pending news for a peer: some megabytes."""
ENTRIES = 32
"""The most entries of a message: they fit a datagram beside its acknowledgements."""
TEXTS = 1024
"""The number of recent keys whose values and hashes are remembered."""


class Terms(NamedTuple):
    """The settings that all limits of a limiter share."""

    origin: int
    """The incarnation of this limiter, 32 bits."""
    secret: bytes
    """The secret of the keys' hashes."""
    interval_ns: int
    """The gossip interval, ns."""
    members: int
    """The number of limiters in the fleet."""
    wall_ns: int = 0
    """The host's clock of the day minus the daemon's clock, ns."""
    name: str | None = None
    """The limiter's name; None: it has no peers."""

    @property
    def margin_ns(self) -> int:
        """The longest delay of news, ns."""
        return (self.members + LATE_ROUNDS) * self.interval_ns


class KeyedLimit:
    """The buckets of one limit at one limiter."""

    def __init__(self, limit: LimitSpec, terms: Terms) -> None:
        self._terms = terms
        self._hash = KeyHash(terms.secret)
        self._last: dict[bytes, int] = {}
        """The hashes of the most recent keys, by their values; `TEXTS` at most."""
        self._before: dict[bytes, int] = {}
        """The hashes of the keys before those; `TEXTS` at most."""
        self.form = FORMS[_keyed(limit.policy).bucket]
        self._adopt(limit)
        self.replica = self._new_replica()

    def _adopt(self, limit: LimitSpec) -> None:
        keyed = _keyed(limit.policy)
        own = {
            self._hash(SEPARATOR.join([shortened(value).encode() for value in it.key])): it
            for it in keyed.overrides
        }
        self.limit = limit
        self._policy = bucket_policy(limit.policy)
        self._limits = {
            key: replace(limit, policy=replace(limit.policy, rate=it.rate, burst=it.burst))
            for key, it in own.items()
        }
        """The limits of the keys with overrides."""
        self._policies = {key: bucket_policy(it.policy) for key, it in self._limits.items()}
        self.scale = scale_of(limit.policy)
        """The tokens of one item of the buckets."""
        self.paused = limit.policy.mode is Mode.PAUSE
        """Whether the buckets refuse nothing and are not charged."""
        self.digest = self._digest()
        """A digest of the settings in which two limiters must agree to tell each other of keys."""

    def _new_replica(self) -> Replica:
        """Return a replica without knowledge and without peers."""
        ledger = self.form is Form.LEDGER
        frequency, slack, repeat_ns = self._pace()
        return Replica(
            self._make,
            (),
            flat if ledger else least_informed,
            frequency=frequency,
            slack=slack,
            repeat_ns=repeat_ns,
            deferred=ledger,
            max_keys=_keyed(self.limit.policy).max_keys,
            max_pending=MAX_PENDING,
            copied_keys=COPIED_KEYS,
            most=ENTRIES,
            name=self._terms.name,
        )

    def _pace(self) -> tuple[FrequencyAnalysis | None, Slack | None, int]:
        """Return the rules of urgent news, and the time after which news are repeated, ns.

        They follow from the size and the interval of the fleet.
        """
        interval_ns, members = self._terms.interval_ns, self._terms.members
        window = max(2, self._policy.capacity // members)
        return (
            FrequencyAnalysis(window, THRESHOLD_NS) if self.form is Form.QUEUE else None,
            Slack(members * interval_ns) if self.form is Form.LEDGER else None,
            REPEAT_ROUNDS * interval_ns,
        )

    def _make(self, key: Key) -> Bucket:
        policy, terms = self.policy_of(key), self._terms
        if self.form is Form.COUNTER:
            return Counter(policy, terms.origin)
        if self.form is Form.QUEUE:
            return Queue(policy, terms.origin)
        return Ledger(policy, terms.origin, terms.interval_ns, terms.margin_ns)

    def fits(self, limit: LimitSpec, terms: Terms) -> bool:
        """Return whether these buckets can be used under another configuration."""
        same = (
            _keyed(limit.policy).bucket == _keyed(self.limit.policy).bucket
            and limit.policy.unit == self.limit.policy.unit
            and match_of(limit).per == match_of(self.limit).per
        )
        fleet = (terms.origin, terms.secret) == (self._terms.origin, self._terms.secret)
        return same and fleet

    def reconfigure(self, limit: LimitSpec, terms: Terms, now_ns: int) -> None:
        """Use this policy from now on; levels stay the same number of tokens."""
        before = self._terms, self._policy, self._policies
        self._terms = terms
        self._adopt(limit)
        policy, policies = self._policy, self._policies
        # A reload comes here twice.
        if (self._terms, policy, policies) != before:
            # A row may follow after the next reload, and must have these policies until then.
            self.replica.reconfigure(lambda key: policies.get(key, policy), self.at(now_ns))
            self.replica.set_pace(*self._pace())
        self.replica.buckets.max_keys = _keyed(limit.policy).max_keys

    def at(self, now_ns: int) -> int:
        """Return a time on the clock of the buckets.

        The thesis' buckets compare clocks of limiters, so they use the host's clock of the day. The
        ledger uses the daemon's own.
        """
        return now_ns if self.form is Form.LEDGER else now_ns + self._terms.wall_ns

    def _digest(self) -> int:
        """Return 16 bits of the settings in which limiters must agree to understand each other's
        keys.

        Rates are not among them: limiters that a reload has not reached yet may go on talking.
        """
        policy = self.limit.policy
        settings = canonical(_FORM_VERSIONS[self.form], {
            "id": policy.id, "bucket": self.form.name, "unit": policy.unit.name,
            "per": ",".join(match_of(self.limit).per), "secret": self._terms.secret.hex(),
        })  # fmt: skip
        return int.from_bytes(blake2s(settings, digest_size=2).digest(), "big")

    def policy_of(self, key: Key) -> Policy:
        """Return the size of a key's bucket."""
        return self._policies.get(key, self._policy)

    def key(self, values: bytes) -> int:
        """Return the hash of these values (`KeyHash`); recent keys are not hashed again."""
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
        """Return the recent keys and their texts: `TEXTS` at least, if there were so many, and
        twice as many at most."""
        found = {**self._before, **self._last}
        return {key: it.replace(SEPARATOR, b", ").decode() for it, key in found.items()}

    def limit_of(self, key: int) -> LimitSpec:
        """Return the limit with the rate and burst of one key."""
        return self._limits.get(key, self.limit)


def _keyed(policy: LimitPolicy) -> Keyed:
    assert policy.keyed is not None
    return policy.keyed


def scale_of(policy: LimitPolicy) -> int:
    """Return the tokens of one item of a bucket: a request, or a byte."""
    return ITEM if policy.unit == REQUESTS else 1


def bucket_policy(policy: LimitPolicy) -> Policy:
    """Return the size of a key's bucket, in whole requests or bytes.

    The rate is the operator's, as a fraction with small numbers: 10 requests in 60 s.
    """
    number, period_s = quota(policy.rate) if policy.unit == REQUESTS else (policy.rate, 1)
    per_ns = period_s * NS_PER_S
    divisor = gcd(number, per_ns)
    capacity = max(policy.burst // scale_of(policy), 1)
    return Policy(capacity, number // divisor, per_ns // divisor)
