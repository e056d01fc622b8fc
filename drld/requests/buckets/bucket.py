"""The interface of replicated buckets. A bucket is the state of one key at one limiter.

A bucket has no clock and sends nothing. Its *news* are the entries that a request or a delta
changed: each entry with its value, where a larger value is a later one. So the news for a peer can
be merged by maximum in any order (`replica`). A *delta* is the state of these entries as it travels
to a peer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeAlias

from drld.requests.buckets.policy import Decision, Policy

Key: TypeAlias = int
"""The key of a bucket: a hash of 64 bits (`drld.requests.keys`)."""
News: TypeAlias = dict[Any, int]
"""Values by entry; each kind of bucket defines its entries."""


class Bucket(ABC):
    """A replica of one key's bucket."""

    __slots__ = ()

    policy: Policy
    since_ns: int
    """The time of the first untold token, ns, if there are any."""

    @property
    def late(self) -> int:
        """The tokens in deltas that came too late."""
        return 0

    def take(self, now_ns: int, cost: int = 1) -> tuple[Decision, News]:
        """Take tokens, or refuse; return the decision and the news, which a refusal leaves empty.

        Raises:
            ValueError: the cost is below 1 or above the capacity.
        """
        decision = self.decide(now_ns, cost)
        return decision, self.charge(now_ns, cost) if decision.admitted else {}

    @abstractmethod
    def decide(self, now_ns: int, cost: int = 1) -> Decision:
        """Return the decision that `take` would make, and take nothing.

        Raises:
            ValueError: the cost is below 1 or above the capacity.
        """

    @abstractmethod
    def charge(self, now_ns: int, cost: int) -> News:
        """Take tokens without a decision, for a request whose cost is known after its admission.

        The level may rise above the capacity; later requests then wait.

        Raises:
            ValueError: the cost is below 1.
        """

    @abstractmethod
    def reconfigure(self, policy: Policy, now_ns: int) -> None:
        """Use another policy from now on; the level stays the same number of tokens."""

    def adopt(self, like: Bucket) -> None:  # noqa: B027 -- most buckets have a policy alone
        """Use the settings of `like`, a new bucket of this kind and policy."""

    @abstractmethod
    def delta(self, news: News, now_ns: int) -> Any:
        """Return these entries as they travel; None or empty if none of them matters any more."""

    @abstractmethod
    def merge(self, delta: Any, now_ns: int) -> tuple[News, News]:
        """Merge a peer's delta; return the news, and the entries that the peer is known to have."""

    def follow(self, delta: Any, now_ns: int) -> Any:
        """Take the floor of the leader's delta (`leading`), if it has one; return the rest, which
        is to be merged. Only a ledger has floors."""
        return delta

    @abstractmethod
    def level(self, now_ns: int) -> float:
        """Return the tokens in use, as far as this replica knows.

        A level above the capacity means that more was admitted than the bucket allows.
        """

    # Slack: the tokens that this limiter admitted and has told no peer. Only a bucket that works
    # with slack counts them, and those that it admits by `spend`.

    @property
    def untold(self) -> int:
        """The number of these tokens."""
        return 0

    def spend(self, now_ns: int, cost: int) -> bool:
        """Take tokens as `take` would if it is certain that it admits them and that peers need not
        be told yet; otherwise return False, and change nothing."""
        return False

    def wake(self, data: bytes, now_ns: int, cost: int, limiters: int) -> Bucket | None:
        """Do as `thaw`, `take` and `due`, if it is certain that the row admits this and that peers
        need not be told yet; otherwise return None."""
        return None

    def due(self, now_ns: int, limiters: int) -> bool:
        """Return whether all peers must be told now, in a fleet of this many limiters
        (`urgency.Slack`). If not, `spend` may admit requests from now on."""
        raise NotImplementedError

    def halt(self) -> None:  # noqa: B027 -- most buckets spend nothing
        """Let `spend` admit nothing until the next call of `due`, because the fleet changes."""

    def untold_news(self) -> News:
        """Return the own entries with untold tokens, and all that are newer."""
        raise NotImplementedError

    def told(self) -> None:  # noqa: B027 -- most buckets count no untold tokens
        """Note that no peer needs news of the untold tokens any more."""

    def told_at_rest(self, data: bytes) -> bytes:
        """Return the frozen state after `told`."""
        return data

    def died(self) -> bool:
        """Return whether entries were removed since the last call, so that `forget` has work."""
        return False

    def forget(self, news: News, now_ns: int) -> None:  # noqa: B027 -- most buckets forget nothing
        """Remove from a peer's news the entries that it need not be told any more."""

    @abstractmethod
    def idle(self, now_ns: int) -> bool:
        """Return whether a new bucket would decide as this one, so that it may be removed."""

    @abstractmethod
    def everything(self) -> News:
        """Return all entries, as news for a peer that knows nothing."""

    def floor(self) -> News:
        """Return the news of the floor (`ledger_floor`); others have none."""
        return {}

    def freeze(self, now_ns: int) -> bytes | None:
        """Return the state in few bytes, for a bucket at rest; None if that is not possible now.

        Only a bucket of the same kind and policy can read the bytes.
        """
        return None

    def thaw(self, data: bytes) -> Bucket:
        """Return another bucket like this one, with the state that `freeze` returned."""
        raise NotImplementedError

    def idle_at_rest(self, data: bytes, now_ns: int) -> bool:
        """Return whether the bucket with this frozen state is `idle`."""
        return self.thaw(data).idle(now_ns)

    @property
    @abstractmethod
    def entries(self) -> int:
        """The number of entries in the state."""


def charged(cost: int) -> int:
    """Return a cost that may be charged.

    Raises:
        ValueError: the cost is below 1.
    """
    if cost < 1:
        raise ValueError(f"cost: must be at least 1 (got {cost})")
    return cost


def checked(policy: Policy, cost: int) -> int:
    """Return a cost that a bucket of this policy may admit.

    Raises:
        ValueError: the cost is not from 1 to the capacity.
    """
    if not 1 <= cost <= policy.capacity:
        raise ValueError(f"cost: must be from 1 to the capacity, {policy.capacity} (got {cost})")
    return cost
