"""The policer of one key, for one request: the limit's counts, and the key's replicated bucket.

To the datapath it is as any policer (`drld.police.policer`), so a request may fall under limits
with keys and without. The limit's own policer has no bucket; it counts what all keys ask for, and
its flows are the keys. The row of the key is looked up once for a request, and once more after a
charge, which may have woken it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from drld.model import FlowId
from drld.police.policer import Policer
from drld.requests.buckets.bucket import Bucket
from drld.requests.buckets.replica import Outgoing
from drld.requests.keyed_limit import KeyedLimit


class KeyPolicer:
    """Checks and charges one request under one key; amounts are tokens of the unit."""

    __slots__ = ("_counts", "_key", "_keyed", "_looked", "_now_ns", "_speak")

    def __init__(
        self, keyed: KeyedLimit, key: int, counts: Policer, speak: Callable[[int, Outgoing], None]
    ) -> None:
        """`counts` is the limit's own; `speak` gets the limit's id, and messages to send."""
        self._keyed = keyed
        self._key = key
        self._counts = counts
        self._speak = speak
        self._now_ns = 0
        self._looked: Bucket | None = None
        """The key's bucket, until it is charged."""

    @property
    def key(self) -> int:
        """The key, as the limit's buckets are told apart."""
        return self._key

    @property
    def shadow(self) -> bool:
        """Whether verdicts are counted only."""
        return self._counts.shadow

    def _bucket(self) -> Bucket:
        """The key's bucket, to be looked at."""
        if (bucket := self._looked) is None:
            self._looked = bucket = self._keyed.replica.buckets.look(self._key)
        return bucket

    def tokens(self, now_ns: int) -> int:
        """See `Policer.tokens`."""
        keyed = self._keyed
        depth = 0 if keyed.paused else keyed.limit_of(self._key).policy.burst
        return depth - round(self._bucket().level(keyed.at(now_ns)) * keyed.scale)

    def fill(self, now_ns: int) -> tuple[int, int | None] | None:
        """See `Policer.fill`."""
        keyed, key = self._keyed, self._key
        if keyed.paused:
            return None
        used = round(self._bucket().level(keyed.at(now_ns)) * keyed.scale)
        policy = keyed.policy_of(key)
        full_ns = policy.wait_ns(-(-used * policy.per_ns // keyed.scale)) if used else 0
        return keyed.limit_of(key).policy.burst - used, full_ns

    def arrive(self, _: FlowId, amount: int) -> None:
        """See `Policer.arrive`."""
        self._counts.arrive(self._key, amount)

    def refuses(self, amount: int, now_ns: int, rng: Random) -> bool:
        """See `Policer.refuses`; it leaves no trace in the bucket."""
        self._now_ns = now_ns
        # The counts have no bucket, and refuse nothing; a replay watches what they are asked.
        if self._counts.refuses(amount, now_ns, rng):
            return True
        keyed = self._keyed
        if keyed.paused:
            return False
        cost = -(-amount // keyed.scale)
        if self._bucket().decide(keyed.at(now_ns), cost).admitted:
            return False
        return self._counts.drop(amount)

    def wait_ns(self, _: FlowId, amount: int, now_ns: int) -> int:
        """See `Policer.wait_ns`; the amount is at most the burst."""
        keyed = self._keyed
        if keyed.paused:
            return 0
        decision = self._bucket().decide(keyed.at(now_ns), -(-amount // keyed.scale))
        return 0 if decision.admitted else max(decision.retry_after_ns, 1)

    def drop(self, amount: int) -> bool:
        """See `Policer.drop`."""
        return self._counts.drop(amount)

    def fall_short(self, _: FlowId, amount: int) -> None:
        """See `Policer.fall_short`."""
        self._counts.fall_short(self._key, amount)

    def forward(self, amount: int) -> int:
        """See `Policer.forward`, after `refuses`."""
        self._take(amount, self._now_ns)
        return self._counts.forward(amount)

    def charge(self, _: FlowId, amount: int, now_ns: int) -> None:
        """See `Policer.charge`."""
        self._take(amount, now_ns)
        self._counts.charge(self._key, amount, now_ns)

    def _take(self, amount: int, now_ns: int) -> None:
        keyed = self._keyed
        if keyed.paused:
            return
        replica, cost = keyed.replica, -(-amount // keyed.scale)
        looked, self._looked = self._looked, None
        found = replica.charge(self._key, keyed.at(now_ns), cost, looked)
        if found or replica.pressing:
            self._speak(keyed.limit.id, found)
