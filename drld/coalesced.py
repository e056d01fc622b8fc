"""An action that many may ask for at a time, run as often as that makes a difference."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from drld.errors import DrldError

LEAST_PAUSE_S, MOST_PAUSE_S = 0.1, 2.0


class Coalesced:
    """Runs the action one at a time, and once for all who asked before it began.

    Between two runs it pauses for as long as the last one took, within `LEAST_PAUSE_S` and
    `MOST_PAUSE_S`, so that a storm of requests leaves the daemon time for all else.
    """

    def __init__(self, action: Callable[[], Awaitable[None]]) -> None:
        self._action = action
        self._lock = trio.Lock()
        self._begun = 0
        self._ended = 0
        self._error: DrldError | None = None
        self._rests_until = float("-inf")

    async def __call__(self) -> None:
        """Return when a run that began after this call has ended.

        Raises:
            DrldError: what that run raised.
        """
        asked_after = self._begun
        async with self._lock:
            if self._ended <= asked_after:
                await trio.sleep_until(max(self._rests_until, trio.current_time()))
                await self._run()
            error = self._error
        if error is not None:
            raise error

    async def _run(self) -> None:
        self._begun += 1
        began = trio.current_time()
        self._error = None
        try:
            await self._action()
        except DrldError as error:
            self._error = error
        ended = trio.current_time()
        self._rests_until = ended + min(max(ended - began, LEAST_PAUSE_S), MOST_PAUSE_S)
        # Not reached by a run that was cancelled: the next in line runs it again.
        self._ended = self._begun
