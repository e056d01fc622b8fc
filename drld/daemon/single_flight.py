"""Single flight: many callers ask for one action, and concurrent calls share a run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from drld.errors import DrldError

MIN_PAUSE_S, MAX_PAUSE_S = 0.1, 2.0


class SingleFlight:
    """Runs the action once at a time, and once for all calls made before the run began.

    Other actions that must not run at the same time take their turn by `alone`.

    Between two runs it pauses for `rest` times as long as the last one took, within `shortest_s`
    and `MAX_PAUSE_S`. A storm of calls therefore leaves the daemon time for its other work.
    """

    def __init__(
        self,
        action: Callable[[], Awaitable[None]],
        rest: float = 1.0,
        shortest_s: float = MIN_PAUSE_S,
    ) -> None:
        self._action = action
        self._rest = rest
        self._shortest_s = shortest_s
        self._lock = trio.Lock()
        self._begun = 0
        self._ended = 0
        self._error: DrldError | None = None
        self._paused_until = float("-inf")

    async def __call__(self) -> None:
        """Return when a run that began after this call has ended.

        Raises:
            DrldError: the error of that run.
        """
        asked_after = self._begun
        async with self._lock:
            if self._ended <= asked_after:
                await self._run()
            error = self._error
        if error is not None:
            raise error

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Do something else while no run is under way, with the pauses of runs."""
        async with self._lock, self._paced():
            yield

    async def _run(self) -> None:
        async with self._paced():
            self._begun += 1
            self._error = None
            try:
                await self._action()
            except DrldError as error:
                self._error = error
        # A cancelled run does not get here: the next waiting caller runs the action again.
        self._ended = self._begun

    @asynccontextmanager
    async def _paced(self) -> AsyncIterator[None]:
        await trio.sleep_until(max(self._paused_until, trio.current_time()))
        began = trio.current_time()
        try:
            yield
        finally:
            ended = trio.current_time()
            pause_s = max(self._rest * (ended - began), self._shortest_s)
            self._paused_until = ended + min(pause_s, MAX_PAUSE_S)
