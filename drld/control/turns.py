"""Turns of the event loop: however many clients there are, they do one piece of work in a pass.

Everything in the daemon shares one loop. A pass of it runs every task that can run, so sixty
clients at once would keep the ticker waiting for sixty pieces of work. Who waits for a turn before
each piece does it alone in its pass, and in the order of asking.
"""

from __future__ import annotations

import trio


class Turns:
    """The turns of all tasks that share them; a piece of work takes a few milliseconds at most."""

    def __init__(self) -> None:
        self._next = trio.Lock()

    async def wait(self) -> None:
        """Return when it is the caller's turn."""
        async with self._next:
            await trio.lowlevel.checkpoint()
