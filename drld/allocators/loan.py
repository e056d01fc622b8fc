"""A limiter's account: the tokens that it may still forward, whatever its news says. Pure.

A limiter divides the limit by news of its peers, so old news may give it more than its part. The
account bounds this excess in tokens, for any traffic. Two sums define it:

    m_i   the least weight that limiter i told in the last D (the age of news)
    S_i   the sum of all weights that i believes now, its own counted as m_i

The *strict share* is m_i / S_i. If no believed weight was told longer than D ago, S_i is at least
the sum of all m_j. So the strict shares of a fleet sum to 1 at most, at every moment, however
weights change (docs/conservative-rule.md).

The account fills at (1 + margin) L m_i / S_i, where L is the limit, and pays for every token that
the limiter forwards. It holds at most `capacity`. Tokens beyond the strict share are a loan from
it. So in any time t a limiter forwards at most its income of that time and its capacity, and the
fleet forwards at most

    (1 + margin) L t + the sum of the capacities

A daemon that was frozen may find that its datapath forwarded more. It owes no more than a capacity,
or it would have no bandwidth for minutes.

The account is settled at ticks. Between ticks the datapath's bucket stands in for the account: its
tokens never exceed the balance, and the balance lasts for `LAST_TICKS` ticks, and for `LAST_S`, at
its fill rate.
"""

from __future__ import annotations

LAST_TICKS = 2
"""Ticks for which the balance must last at the fill rate in force: one tick may be late."""
LAST_S = 0.1
"""Least time for which it must last, s: with short intervals, several ticks may be late at once."""


class LoanAccount:
    """The tokens that one limiter may still forward of one limit."""

    __slots__ = ("_income", "balance", "capacity")

    def __init__(self) -> None:
        self.balance: float | None = None
        """Balance, tokens; None before the first settling, which fills the account."""
        self.capacity = 0.0
        """Largest balance, tokens."""
        self._income = 0.0

    def settle(self, forwarded: int, income: float, capacity: float, interval_s: float) -> None:
        """Settle the account at the end of an interval; the first settling fills it.

        Args:
            forwarded: tokens that the limiter forwarded in the interval.
            income: rate at which the account fills from now on, tokens/s.
            capacity: largest balance from now on, tokens.
            interval_s: the interval's length, s.
        """
        if self.balance is None:
            # A datapath that outlived its daemon may have counted for hours.
            earned = capacity
        else:
            earned = self.balance + self._income * interval_s - forwarded
        self.balance = min(max(earned, -capacity), capacity)
        self.capacity = capacity
        self._income = income

    @property
    def missing(self) -> float:
        """Tokens that the account lacks of its capacity."""
        return 0.0 if self.balance is None else max(self.capacity - self.balance, 0.0)

    def spare(self, fill_rate: float, interval_s: float) -> float:
        """Tokens of the balance that a fill rate leaves for the depth of the bucket."""
        if self.balance is None:
            return 0.0
        return self.balance - _lasting(interval_s) * max(fill_rate - self._income, 0.0)

    def depth(self, wanted: float, least: float) -> float:
        """Depth of the datapath's bucket, tokens: `wanted` up to the balance, at least `least`."""
        balance = wanted if self.balance is None else self.balance
        return max(min(wanted, balance), least)

    def fill_rate(self, wanted: float, depth: float, interval_s: float) -> float:
        """Fill rate of a bucket of this depth, tokens/s: `wanted`, or all that the balance pays."""
        if self.balance is None:
            return wanted
        spare = (self.balance - depth) / _lasting(interval_s)
        return max(min(wanted, self._income + spare), 0.0)


def _lasting(interval_s: float) -> float:
    """Time for which the balance must last, s."""
    return max(LAST_TICKS * interval_s, LAST_S)
