"""Rates and bursts of messages in the form that people write: `11k/s`, `100/min`, `26msg`."""

from __future__ import annotations

from fractions import Fraction

from drld.messages.spec import ITEM, MESSAGES
from drld.units import QuantityError, split_quantity

RATE = 'a rate such as "11k/s", from "9/d" to "10M/s", per s, min, h or d'
BURST = 'a number of messages such as "26msg", from "1msg" to "1Mmsg"'

_FACTORS = {"": 1, "k": 10**3, "M": 10**6}
_PERIODS_S = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
_RATES = {
    f"{prefix}{word}/{period}": Fraction(factor * ITEM, seconds)
    for prefix, factor in _FACTORS.items()
    for word in ("", "msg")
    for period, seconds in _PERIODS_S.items()
}
_AMOUNTS = {f"{prefix}msg": factor * ITEM for prefix, factor in _FACTORS.items()}


def parse_rate(text: str) -> int:
    """Read a rate such as "11k/s", "11kmsg/s" or "1.5/min" as tokens/s.

    A fraction of a token per second is cut off, so that a limit is never above the asked rate.

    Raises:
        QuantityError: the text is no rate, or the rate is outside the unit's bounds.
    """
    number, unit = split_quantity(text, RATE)
    rate = int(number * _RATES.get(unit, 0))
    if not MESSAGES.min_rate <= rate <= MESSAGES.max_rate:
        raise QuantityError(text, RATE)
    return rate


def parse_burst(text: str) -> int:
    """Read a number of messages such as "26msg" or "1.5kmsg" as tokens.

    Raises:
        QuantityError: the text is no whole number of messages within the unit's bounds.
    """
    number, unit = split_quantity(text, BURST)
    burst = number * _AMOUNTS.get(unit, 0)
    if burst % ITEM or not MESSAGES.min_burst <= burst <= MESSAGES.max_burst:
        raise QuantityError(text, BURST)
    return int(burst)
