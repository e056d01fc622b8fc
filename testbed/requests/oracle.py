"""The ground truth: a literal token bucket, apart from drld's code.

It counts tokens with exact fractions, as a textbook does; drld's buckets compare times.
"""

from __future__ import annotations

from fractions import Fraction


class TokenBucket:
    """One user's central bucket; full at first."""

    def __init__(self, capacity: int, rate_s: Fraction) -> None:
        """`rate_s` is tokens/s."""
        self._capacity = Fraction(capacity)
        self._rate_ms = rate_s / 1000
        self.tokens = Fraction(capacity)
        """Below zero: debt, after `force`."""
        self._at_ms = 0

    def refill(self, at_ms: int) -> None:
        """Let time pass."""
        self.tokens = min(self._capacity, self.tokens + (at_ms - self._at_ms) * self._rate_ms)
        self._at_ms = at_ms

    def take(self, at_ms: int) -> bool:
        """Take a token, or refuse."""
        self.refill(at_ms)
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True

    def force(self, at_ms: int) -> None:
        """Somebody else admitted a request: its token is gone, whether or not it was there."""
        self.refill(at_ms)
        self.tokens -= 1
