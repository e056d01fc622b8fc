"""What is measured in real time, taken again where the host disturbed it.

Only what the measurement itself says was the host's doing (`DisturbedError`) is taken again;
whatever else goes wrong is an error at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from testbed.errors import DisturbedError

Found = TypeVar("Found")

ATTEMPTS = 5
"""In all."""


async def undisturbed(
    measure: Callable[[], Awaitable[Found]],
    note: Callable[[str], None] = print,
    attempts: int = ATTEMPTS,
) -> Found:
    """What the first attempt that the host left alone has found; `note` is told of the others.

    Raises:
        DisturbedError: there was none.
    """
    for _ in range(attempts - 1):
        try:
            return await measure()
        except DisturbedError as disturbance:
            note(f"{disturbance}; again")
    return await measure()
