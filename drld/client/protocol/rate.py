"""Rates in the form of Python's libraries for limits: `100/minute`, `5 per second`, `10/2
hours`."""

from __future__ import annotations

import re
from collections.abc import Mapping

PERIODS_S: Mapping[str, int] = {
    **dict.fromkeys(("s", "sec", "second"), 1),
    **dict.fromkeys(("min", "minute"), 60),
    **dict.fromkeys(("h", "hour"), 3600),
    **dict.fromkeys(("d", "day"), 86_400),
}
"""The lengths of periods, seconds."""
_RATE = re.compile(r"(\d{1,9})\s*(?:/|\sper\s)\s*(\d{1,5}\s)?\s*([a-z]+?)s?", re.ASCII)


def parse_rate(text: str) -> tuple[int, int]:
    """Return a number of requests, and the seconds in which they may come.

    Raises:
        ValueError: the text is no rate.
    """
    found = _RATE.fullmatch(text.strip().lower())
    number, periods, period = found.groups() if found else ("0", None, "")
    seconds = PERIODS_S.get(period, 0) * int(periods or 1)
    if not int(number) or not seconds:
        raise ValueError(f'{text!r}: must be a rate such as "100/minute", per s, min, h or d')
    return int(number), seconds
