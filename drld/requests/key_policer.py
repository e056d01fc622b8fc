"""The policer of one key, for one request: the limit's counts, and the key's replicated bucket.

To the datapath it is as any policer (`drld.police.policer`), so a request may fall under limits
with keys and without. The limit's own policer has no bucket; it counts what all keys ask for, and
its flows are the keys.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from drld.model import FlowId
from drld.police.policer import Policer
from drld.requests.buckets.replica import Outgoing
from drld.requests.keyed_limit import KeyedLimit


class KeyBucket:
    """A key's bucket as `drld.police.token_bucket` shows one; amounts are tokens of the unit."""

    __slots__ = ("_key", "_keyed", "_level", "depth", "updated_ns")

    def __init__(self, keyed: KeyedLimit, key: int) -> None:
        self._keyed = keyed
        self._key = key
        self._level = 0.0
        burst = keyed.limit_of(key).policy.burst
        self.depth: int | None = None if keyed.paused else burst
        """The most that the bucket holds; None: there is no bucket."""
        self.updated_ns = 0

    def settle(self, now_ns: int) -> None:
        """Look at the bucket at this time."""
        self.updated_ns = now_ns
        self._level = self._keyed.replica.level(self._key, self._keyed.at(now_ns))

    @property
    def tokens(self) -> int:
        """What is left; negative in debt."""
        return (self.depth or 0) - round(self._level * self._keyed.scale)

    def wait_ns(self, amount: int, left: int) -> int:
        """Time until the bucket has this amount and leaves so much, or is full."""
        policy = self._keyed.policy_of(self._key)
        missing = min(amount + left, self.depth or 0) - self.tokens
        ticks = -(-missing * policy.per_ns // self._keyed.scale)
        return policy.wait_ns(ticks)


class KeyPolicer:
    """Checks and charges one request under one key."""

    __slots__ = ("_counts", "_key", "_keyed", "_now_ns", "_speak", "bucket")

    def __init__(
        self, keyed: KeyedLimit, key: int, counts: Policer, speak: Callable[[int, Outgoing], None]
    ) -> None:
        """`counts` is the limit's own; `speak` gets the limit's id, and messages to send."""
        self._keyed = keyed
        self._key = key
        self._counts = counts
        self._speak = speak
        self._now_ns = 0
        self.bucket = KeyBucket(keyed, key)

    @property
    def key(self) -> int:
        """The key, as the limit's buckets are told apart."""
        return self._key

    @property
    def shadow(self) -> bool:
        """Whether verdicts are counted only."""
        return self._counts.shadow

    def arrive(self, _: FlowId, amount: int) -> None:
        """See `Policer.arrive`."""
        self._counts.arrive(self._key, amount)

    def refuses(self, amount: int, now_ns: int, rng: Random) -> bool:
        """See `Policer.refuses`; it leaves no trace in the bucket."""
        self._now_ns = now_ns
        # The counts have no bucket, and refuse nothing; a replay watches what they are asked.
        if self._counts.refuses(amount, now_ns, rng):
            return True
        return self.wait_ns(self._key, amount, now_ns) != 0 and self._counts.drop(amount)

    def wait_ns(self, _: FlowId, amount: int, now_ns: int) -> int:
        """See `Policer.wait_ns`; the amount is at most the burst."""
        if self._keyed.paused:
            return 0
        at_ns = self._keyed.at(now_ns)
        decision = self._keyed.replica.decide(self._key, at_ns, self._cost(amount))
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
        if self._keyed.paused:
            return
        at_ns = self._keyed.at(now_ns)
        replica = self._keyed.replica
        found = replica.charge(self._key, at_ns, self._cost(amount))
        if found or replica.pressing:
            self._speak(self._keyed.limit.id, found)

    def _cost(self, amount: int) -> int:
        """In items of the bucket; a part of one counts as one."""
        return -(-amount // self._keyed.scale)
