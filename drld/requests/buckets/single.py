"""A bucket of a limiter that tells no peer: GCRA as a `Bucket`."""

from __future__ import annotations

from typing import Any

from drld.requests.buckets.bucket import Bucket, News, charged, checked
from drld.requests.buckets.gcra import admit, decide
from drld.requests.buckets.policy import Decision, Policy


class Single(Bucket):
    """A bucket that is not replicated; it begins full."""

    __slots__ = ("_tat", "policy")

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._tat: int | None = None
        """The TAT in ticks; None: nothing was taken yet."""

    def decide(self, now_ns: int, cost: int = 1) -> Decision:
        """See `Bucket.decide`."""
        now = now_ns * self.policy.rate
        tat = now if self._tat is None else self._tat
        return decide(self.policy, tat, now, checked(self.policy, cost))

    def charge(self, now_ns: int, cost: int) -> News:
        """See `Bucket.charge`; there are no news of it."""
        now = now_ns * self.policy.rate
        tat = now if self._tat is None else self._tat
        self._tat = admit(self.policy, tat, now, charged(cost))
        return {}

    def reconfigure(self, policy: Policy, now_ns: int) -> None:
        """See `Bucket.reconfigure`."""
        if self._tat is not None:
            ahead = self._tat - now_ns * self.policy.rate
            self._tat = now_ns * policy.rate - (-ahead * policy.per_ns // self.policy.per_ns)
        self.policy = policy

    def delta(self, news: News, now_ns: int) -> Any:
        """See `Bucket.delta`: nothing."""
        return None

    def merge(self, delta: Any, now_ns: int) -> tuple[News, News]:
        """See `Bucket.merge`; nothing is merged."""
        return {}, {}

    def level(self, now_ns: int) -> float:
        """See `Bucket.level`."""
        ahead = 0 if self._tat is None else self._tat - now_ns * self.policy.rate
        return max(ahead, 0) / self.policy.per_ns

    def idle(self, now_ns: int) -> bool:
        """See `Bucket.idle`."""
        return self._tat is None or self._tat <= now_ns * self.policy.rate

    def everything(self) -> News:
        """See `Bucket.everything`."""
        return {}

    @property
    def entries(self) -> int:
        """See `Bucket.entries`."""
        return 0
