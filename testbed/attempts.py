"""Repeats a measurement in real time if the host disturbed it.

Only `DisturbedError`, by which the measurement itself blames the host, leads to another attempt.
Any other error ends the measurement at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NoReturn, TypeVar

from testbed.errors import DisturbedError

Found = TypeVar("Found")

ATTEMPTS = 5
"""Number of attempts."""


def refused(disturbance: str) -> NoReturn:
    """Refuse a measurement that the host disturbed.

    Raises:
        DisturbedError: always.
    """
    raise DisturbedError(disturbance)


async def undisturbed(
    measure: Callable[[], Awaitable[Found]], note: Callable[[str], None] = print
) -> Found:
    """The result of the first undisturbed attempt; `note` gets the reasons of the disturbed ones.

    Raises:
        DisturbedError: all attempts were disturbed.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return await measure()
        except DisturbedError as disturbance:
            note(f"{disturbance}; again")
    return await measure()
