"""The cost of a bucket that is split among brokers: the DRL penalty (SRTM 2021, section II-A).

Under Poisson arrivals a token bucket (r, b) is an M/D/1 queue with the service time 1/r. A message
waits if the unfinished work U that it finds is above b - 1, so that its mean access delay is

    E[T] = P(U > b - 1) / (2 r (1 - rho)),   rho = arrival rate / r                        (eq. 1)

With a k-th of the rate and of the depth, both factors grow. The *law of the tail* follows from how
the burst is profiled (`envelope`): b - 1 is the 99th percentile of U. A broker with the share w of
the load, of r and of b sees the same distribution of U, counted in services that take 1 / w as
long. Its bucket lacks b (1 - w) of b. So the 99th percentile of its delay is this lack at its rate:

    p99 = b (1 - w) / (w r)
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from math import floor

_GUARD = 30
"""Decimal digits beyond those that cancel in the sum."""


def work_above(work: float, rho: float) -> float:
    """P(U > work) of an M/D/1 queue at the load `rho`; work is counted in services.

        P(U > x) = 1 - (1 - rho) sum over j = 0..floor(x) of (rho (j - x))^j / j! exp(rho (x - j))

    (Roberts, Mocci and Virtamo, *Broadband Network Teletraffic*, 1996, section 15.1.) The terms
    alternate and are as large as exp(rho x), so they are summed with as many digits.

    Raises:
        ValueError: the load is not between 0 and 1, or the work negative.
    """
    if not 0 < rho < 1 or work < 0:
        raise ValueError("the load must be between 0 and 1, and the work at least 0")
    with localcontext() as context:
        context.prec = _GUARD + int(work)
        load, amount, total, factorial = Decimal(rho), Decimal(work), Decimal(0), Decimal(1)
        for number in range(floor(work) + 1):
            factorial *= max(number, 1)
            below = load * (amount - number)
            power = Decimal(1) if number == 0 else (-below) ** number
            total += power / factorial * below.exp()
        return float(1 - (1 - load) * total)


def mean_delay(rate: float, burst: float, rho: float) -> float:
    """The mean access delay according to eq. (1), s.

    Args:
        rate: the bucket's fill rate, messages/s.
        burst: the bucket's depth, messages, at least 1.
        rho: the arrival rate over `rate`.
    """
    return work_above(burst - 1, rho) / (2 * rate * (1 - rho))


def tail_delay(rate: float, burst: float, share: float) -> float:
    """The 99th percentile of the access delay at a broker with this share of all, s."""
    return burst * (1 - share) / (share * rate)
