"""Rates and bursts of requests, as people write them: `100/s`, `6000/h`, `200`."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

from drld.requests.spec import ITEM, REQUESTS
from drld.units import QuantityError

PERIODS_S: Mapping[str, int] = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
"""The periods of a rate, seconds."""
RATE = 'a rate such as "100/s", from "9/d" to "10000000/s", per s, min, h or d'
BURST = "a number of requests, from 1 to 1000000"
_LONGEST = 24
"""The most characters of a rate: more digits than its bounds have."""


def parse_rate(text: str) -> int:
    """Return a rate such as "100/s" or "1.5/min" as tokens/s.

    A fraction of a token per second is cut off, so that a limit is never above the operator's rate.

    Raises:
        QuantityError: the text is no rate, or outside the unit's bounds.
    """
    number, _, period = text.partition("/")
    whole, dot, decimals = number.partition(".")
    sound = whole.isascii() and whole.isdigit() and len(text) <= _LONGEST
    if dot:
        sound = sound and decimals.isascii() and decimals.isdigit()
    if not sound or period not in PERIODS_S:
        raise QuantityError(text, RATE)
    rate = int(Fraction(number) * ITEM / PERIODS_S[period])
    if not REQUESTS.min_rate <= rate <= REQUESTS.max_rate:
        raise QuantityError(text, RATE)
    return rate


@lru_cache(maxsize=1024)
def quota(rate: int) -> tuple[int, int]:
    """Return a rate, tokens/s, as a whole number of requests in a period, s: 100 in 60 s."""
    for period_s in PERIODS_S.values():
        tokens = rate * period_s
        # Less than a token per second was cut off when the rate was read.
        number = (tokens + period_s - 1) // ITEM
        if number and 0 <= number * ITEM - tokens < period_s:
            return number, period_s
    return tokens // ITEM, period_s
