"""The ground truth: a literal token bucket, apart from drld's code.

It counts tokens exactly, as a textbook does; drld's buckets compare times.
"""

from __future__ import annotations

from fractions import Fraction


class TokenBucket:
    """One user's central bucket; full at first."""

    def __init__(self, capacity: int, rate_s: Fraction) -> None:
        """`rate_s` is tokens/s."""
        rate_ms = rate_s / 1000
        # Amounts are whole numbers of a part of a token, so that a millisecond refills whole parts.
        self._parts = rate_ms.denominator
        self._capacity = capacity * self._parts
        self._refill = rate_ms.numerator
        self._left = self._capacity
        self._at_ms = 0

    @property
    def tokens(self) -> Fraction:
        """Tokens that are left at the last request; below zero: debt, after `force`."""
        return Fraction(self._left, self._parts)

    def refill(self, at_ms: int) -> None:
        """Let time pass."""
        self._left = min(self._capacity, self._left + (at_ms - self._at_ms) * self._refill)
        self._at_ms = at_ms

    def take(self, at_ms: int) -> bool:
        """Take a token, or refuse."""
        self.refill(at_ms)
        if self._left < self._parts:
            return False
        self._left -= self._parts
        return True

    def force(self, at_ms: int) -> None:
        """Somebody else admitted a request: its token is gone, whether or not it was there."""
        self.refill(at_ms)
        self._left -= self._parts
