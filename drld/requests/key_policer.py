"""The policer of one key, for one request: the limit's counts, and the key's replicated bucket.

The datapath uses it like any policer (`drld.police.policer`), so a request may fall under limits
with keys and without. The limit's own policer has no bucket. It counts the requests of all keys,
and its flows are the keys. A request looks its key's row up once: the check reads the row, and the
charge wakes it. A request under this limit alone is checked and charged in one step (`police`).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from drld.model import FlowId
from drld.police.policer import Policer
from drld.requests.buckets.bucket import Bucket
from drld.requests.buckets.replica import Outgoing
from drld.requests.keyed_limit import KeyedLimit
from drld.spec import LimitSpec


class KeyPolicer:
    """Checks and charges one request under one key; amounts are tokens of the unit."""

    __slots__ = ("_at_ns", "_counts", "_keyed", "_row", "_speak", "key", "limit", "shadow")

    def __init__(
        self, keyed: KeyedLimit, key: int, counts: Policer, speak: Callable[[int, Outgoing], None]
    ) -> None:
        """Make the policer of a request.

        Args:
            keyed: the limit's buckets.
            key: the key's hash.
            counts: the limit's own policer.
            speak: called with the limit's id and messages to send.
        """
        self.key = key
        self.limit: LimitSpec = keyed.limit_of(key)
        """The limit with the rate and burst of this key."""
        self.shadow = counts.shadow
        """Whether the limit only counts its verdicts."""
        self._keyed = keyed
        self._counts = counts
        self._speak = speak
        self._at_ns = 0
        """The time of the check on the buckets' clock, ns."""
        self._row: Bucket | None = None
        """The key's bucket; None until a check or a charge needs it."""

    def _bucket(self) -> Bucket:
        """Return the key's bucket for a check."""
        if (bucket := self._row) is None:
            self._row = bucket = self._keyed.replica.buckets.look(self.key)
        return bucket

    def tokens(self, now_ns: int) -> int:
        """See `Policer.tokens`."""
        keyed = self._keyed
        depth = 0 if keyed.paused else self.limit.policy.burst
        return depth - round(self._bucket().level(keyed.at(now_ns)) * keyed.scale)

    def fill(self, now_ns: int) -> tuple[int, int | None] | None:
        """See `Policer.fill`."""
        keyed = self._keyed
        if keyed.paused:
            return None
        bucket = self._bucket()
        used = round(bucket.level(keyed.at(now_ns)) * keyed.scale)
        policy = bucket.policy
        full_ns = -(-used * policy.per_ns // (keyed.scale * policy.rate))
        return self.limit.policy.burst - used, full_ns

    def arrive(self, _: FlowId, amount: int) -> None:
        """See `Policer.arrive`."""
        self._counts.arrive(self.key, amount)

    def refuses(self, amount: int, now_ns: int, rng: Random) -> bool:
        """See `Policer.refuses`; the bucket stays as it is."""
        # The counts have no bucket and refuse nothing, but a replay watches their calls.
        if self._counts.refuses(amount, now_ns, rng):
            return True
        keyed = self._keyed
        if keyed.paused:
            return False
        self._at_ns = at_ns = keyed.at(now_ns)
        if self._bucket().decide(at_ns, -(-amount // keyed.scale)).admitted:
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
        self._counts.fall_short(self.key, amount)

    def forward(self, amount: int) -> int:
        """See `Policer.forward`, after `refuses`."""
        self._take(amount, self._at_ns)
        return self._counts.forward(amount)

    def police(self, amount: int, now_ns: int, rng: Random) -> bool:
        """Do as `refuses`, and then as `forward` if it does not refuse, for a request that falls
        under no other limit."""
        if self._counts.refuses(amount, now_ns, rng):
            return True
        keyed = self._keyed
        if not keyed.paused:
            replica = keyed.replica
            decision, found = replica.take(self.key, keyed.at(now_ns), -(-amount // keyed.scale))
            # An earlier check may have read a row at rest, which is another object once awake.
            self._row = None
            if not decision.admitted:
                return self._counts.drop(amount)
            if found or replica.pressing:
                self._speak(keyed.limit.id, found)
        self._counts.forward(amount)
        return False

    def charge(self, _: FlowId, amount: int, now_ns: int) -> None:
        """See `Policer.charge`."""
        self._take(amount, self._keyed.at(now_ns))
        self._counts.charge(self.key, amount, now_ns)

    def _take(self, amount: int, at_ns: int) -> None:
        keyed = self._keyed
        if keyed.paused:
            return
        key, replica = self.key, keyed.replica
        self._row = row = replica.buckets.row(key, at_ns, self._row)
        found = replica.charge_row(key, row, at_ns, -(-amount // keyed.scale))
        if found or replica.pressing:
            self._speak(keyed.limit.id, found)
