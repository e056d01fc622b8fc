"""Whether processors stand still: a thread on each that does nothing but notice when it is late.

A virtual machine stops now and then, as a whole or one processor of it, for a tenth of a second or
more. What is measured meanwhile is of the host and not of what runs on it.
"""

from __future__ import annotations

import os
import threading
import time
from types import TracebackType

BEAT_S = 0.02


class Beats:
    """How late processors are, while it is entered. As urgent as the thread that enters it."""

    def __init__(self) -> None:
        self._worst_s = dict.fromkeys(os.sched_getaffinity(0), 0.0)
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._beat, args=(processor,), daemon=True)
            for processor in self._worst_s
        ]

    def __enter__(self) -> Beats:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _beat(self, processor: int) -> None:
        os.sched_setaffinity(0, {processor})  # of this thread
        due_s = time.monotonic() + BEAT_S
        while not self._over.wait(BEAT_S):
            late_s = time.monotonic() - due_s
            self._worst_s[processor] = max(self._worst_s[processor], late_s)
            due_s = time.monotonic() + BEAT_S

    def take(self) -> float:
        """By how much any beat since the last call was late at most, seconds."""
        worst_s = max(self._worst_s.values())
        self._worst_s = dict.fromkeys(self._worst_s, 0.0)
        return worst_s
