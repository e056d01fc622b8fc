"""One token bucket as a single number: the generic cell rate algorithm (ITU-T I.371).

The *theoretical arrival time* (TAT) is when the bucket is full again. A request of n tokens sets it
to `max(TAT, now) + n / rate`, and conforms if that is at most `capacity / rate` ahead of now. The
bucket's level (tokens in use) is `(TAT - now) rate`. The arithmetic is exact (`policy`), so this is
the bucket that all replicated ones are compared with.
"""

from __future__ import annotations

from drld.requests.buckets.policy import ADMITTED, Decision, Policy


def admit(policy: Policy, tat: int, now: int, cost: int) -> int:
    """Return the TAT after a request of `cost` tokens, whether or not it conforms; times in
    ticks."""
    return max(tat, now) + cost * policy.per_ns


def decide(policy: Policy, tat: int, now: int, cost: int) -> Decision:
    """Return whether a request of `cost` tokens conforms; times in ticks.

    Raises:
        ValueError: the cost is negative or above the capacity.
    """
    if not 0 <= cost <= policy.capacity:
        raise ValueError(f"cost: must be from 0 to the capacity, {policy.capacity} (got {cost})")
    ahead = (tat - now if tat > now else 0) + cost * policy.per_ns - policy.depth
    return ADMITTED if ahead <= 0 else Decision(False, policy.wait_ns(ahead))


class Gcra:
    """A bucket of one limiter; it begins full."""

    __slots__ = ("_policy", "_tat")

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._tat: int | None = None
        """The TAT in ticks; None: nothing was admitted yet."""

    def take(self, now_ns: int, cost: int = 1) -> Decision:
        """Take tokens, or refuse and change nothing.

        Raises:
            ValueError: the cost is negative or above the capacity.
        """
        policy, tat = self._policy, self._tat
        now = now_ns * policy.rate
        if tat is None or tat < now:
            tat = now
        # `decide` in place: a call costs as much as all that it does.
        after = tat + cost * policy.per_ns
        if after - now <= policy.depth and cost >= 0:
            self._tat = after
            return ADMITTED
        return decide(policy, tat, now, cost)

    def charge(self, now_ns: int, cost: int) -> None:
        """Take tokens without a decision; the bucket may be in debt then."""
        now = now_ns * self._policy.rate
        self._tat = admit(self._policy, now if self._tat is None else self._tat, now, cost)

    def level(self, now_ns: int) -> float:
        """Return the tokens that are taken and not yet refilled."""
        if self._tat is None:
            return 0.0
        return max(self._tat - now_ns * self._policy.rate, 0) / self._policy.per_ns
