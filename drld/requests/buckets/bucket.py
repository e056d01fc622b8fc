"""What every replicated bucket can do: one key's state at one limiter.

A bucket has no clock and sends nothing. Its *news* are the entries that a request or a delta
changed: entry to value, where the larger value is the later one. So news for a peer are merged by
maximum however they come (`replica`). A *delta* is what a peer gets: the state of these entries,
as it travels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, TypeAlias

from drld.requests.buckets.policy import Decision, Policy

News: TypeAlias = dict[Any, int]
"""Values by entry; an entry is whatever a kind of bucket makes it."""


class Taken(NamedTuple):
    """The outcome of a request."""

    decision: Decision
    news: News
    """Empty if it was refused."""


class Bucket(ABC):
    """A replica of one key's bucket."""

    __slots__ = ()

    policy: Policy

    @property
    def late(self) -> int:
        """Tokens in deltas that came too late."""
        return 0

    def take(self, now_ns: int, cost: int = 1) -> Taken:
        """Take tokens, or refuse.

        Raises:
            ValueError: the bucket never has so many tokens.
        """
        decision = self.decide(now_ns, cost)
        return Taken(decision, self.charge(now_ns, cost) if decision.admitted else {})

    @abstractmethod
    def decide(self, now_ns: int, cost: int = 1) -> Decision:
        """What `take` would decide; it takes nothing.

        Raises:
            ValueError: the bucket never has so many tokens.
        """

    @abstractmethod
    def charge(self, now_ns: int, cost: int) -> News:
        """Take tokens in any case: the cost of a request that was admitted before it was known.

        The level may pass the capacity; later requests then wait.

        Raises:
            ValueError: the cost is below 1.
        """

    @abstractmethod
    def reconfigure(self, policy: Policy, now_ns: int) -> None:
        """Have another policy from now on; the level stays, in tokens."""

    def adopt(self, like: Bucket) -> None:  # noqa: B027 -- most buckets have a policy alone
        """Have the settings of a bucket of this kind and policy that is made now."""

    @abstractmethod
    def delta(self, news: News, now_ns: int) -> Any:
        """These entries as they travel; None: none of them matters any more."""

    @abstractmethod
    def merge(self, delta: Any, now_ns: int) -> tuple[News, News]:
        """Merge a peer's delta.

        Returns the news, and what the peer is known to have (entries by value).
        """

    @abstractmethod
    def level(self, now_ns: int) -> float:
        """Tokens in use, as far as this replica knows; above the capacity: more than allowed."""

    def died(self) -> bool:
        """Whether entries were removed since this was asked last, so that `forget` has work."""
        return False

    def forget(self, news: News, now_ns: int) -> None:  # noqa: B027 -- most buckets forget nothing
        """Take entries that need not be told any more out of the news for a peer."""

    @abstractmethod
    def idle(self, now_ns: int) -> bool:
        """Whether a new bucket would decide as this one, so that it may be removed."""

    @abstractmethod
    def everything(self) -> News:
        """All entries: news for a peer that knows nothing."""

    def freeze(self, now_ns: int) -> bytes | None:
        """The state in few bytes, for a bucket that nobody asks for now; None: not possible now.

        Only a bucket of the same kind and policy can read it.
        """
        return None

    def thaw(self, data: bytes) -> Bucket:
        """Another bucket like this one, with the state that `freeze` gave."""
        raise NotImplementedError

    def idle_at_rest(self, data: bytes, now_ns: int) -> bool:
        """Whether the bucket of this state is `idle`."""
        return self.thaw(data).idle(now_ns)

    @property
    @abstractmethod
    def entries(self) -> int:
        """The number of entries of the state."""


def charged(cost: int) -> int:
    """A cost that may be charged.

    Raises:
        ValueError: it is below 1.
    """
    if cost < 1:
        raise ValueError(f"cost: must be at least 1 (got {cost})")
    return cost


def checked(policy: Policy, cost: int) -> int:
    """A cost that a bucket can have.

    Raises:
        ValueError: it is not from 1 to the capacity.
    """
    if not 1 <= cost <= policy.capacity:
        raise ValueError(f"cost: must be from 1 to the capacity, {policy.capacity} (got {cost})")
    return cost
