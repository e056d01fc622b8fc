"""What is measured in real time, taken again where the host disturbed it, as testbed.suite does.

Only what the measurement itself says was the host's doing (`DisturbedError`) is taken again;
whatever else goes wrong fails the test at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from testbed.errors import DisturbedError
from testbed.suite import ATTEMPTS

Found = TypeVar("Found")


async def undisturbed(measure: Callable[[], Awaitable[Found]]) -> Found:
    """What the first attempt that the host left alone has found.

    Raises:
        DisturbedError: there was none.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return await measure()
        except DisturbedError as disturbance:
            print(disturbance)  # shown if the test fails
    return await measure()
