"""A limiter's account of bytes: what it may still forward, whatever it believes. Pure.

A limiter that divides the limit by news of its peers may take more than its part while the news is
old. The account bounds that in bytes, for any traffic. With

    m_i   the least weight that limiter i told in the last D (the age of news)
    S_i   the sum of all weights that i believes in now, its own m_i at least

the *strict share* is m_i / S_i. If all that is believed was told no longer than D ago, S_i is at
least the sum of all m_j. So the strict shares of a fleet sum to 1 at most, at every moment, however
weights change (docs/conservative-rule.md).

The account fills at (1 + margin) L m_i / S_i and pays for every byte that is forwarded. It holds
`capacity` at most. What a limiter forwards above its strict share is a loan from it. So a limiter
forwards in any time t no more than its strict share of that time and its capacity, and the fleet

    (1 + margin) L t + the sum of the capacities

The account is kept at ticks. Between two of them the datapath's bucket stands in for it: its tokens
are never more than the balance, and its fill rate is one that the balance lasts for.
"""

from __future__ import annotations

LAST_TICKS = 2
"""Ticks that the balance must last for at the fill rate in force: one may be late."""


class LoanAccount:
    """What one limiter may still forward of one limit."""

    __slots__ = ("_income", "balance", "capacity")

    def __init__(self) -> None:
        self.balance: float | None = None
        """Bytes; None before the first settling, which fills the account."""
        self.capacity = 0.0
        """Bytes."""
        self._income = 0.0

    def settle(self, forwarded: int, income: float, capacity: float, interval_s: float) -> None:
        """End an interval.

        Args:
            forwarded: bytes let through in it.
            income: strict rate from now on, bytes/s.
            capacity: bytes that the account holds from now on.
            interval_s: the interval's length.
        """
        before = capacity if self.balance is None else self.balance
        earned = before + self._income * interval_s - forwarded
        self.balance = min(earned, capacity)
        self.capacity = capacity
        self._income = income

    @property
    def missing(self) -> float:
        """Bytes that the account lacks."""
        return 0.0 if self.balance is None else max(self.capacity - self.balance, 0.0)

    def depth(self, wanted: float, least: float) -> float:
        """Depth of the bucket that stands in for the account, bytes, `least` at least."""
        balance = wanted if self.balance is None else self.balance
        return max(min(wanted, balance), least)

    def fill_rate(self, wanted: float, depth: float, interval_s: float) -> float:
        """Fill rate of that bucket, bytes/s, if it is so deep."""
        if self.balance is None:
            return wanted
        spare = (self.balance - depth) / (LAST_TICKS * interval_s)
        return max(min(wanted, self._income + spare), 0.0)
