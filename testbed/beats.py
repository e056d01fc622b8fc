"""Detects processors that stand still: a thread on each measures how late it wakes up.

A virtual machine, or one of its processors, stops now and then for a tenth of a second or more.
Measurements during that time are about the host, not about the software that runs on it.
"""

from __future__ import annotations

import os
import threading
import time
from types import TracebackType

BEAT_S = 0.02


class Beats:
    """Measures how late processors are, while entered; with the priority of the entering thread."""

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
        """The largest lateness of any beat since the last call, seconds."""
        worst_s = max(self._worst_s.values())
        self._worst_s = dict.fromkeys(self._worst_s, 0.0)
        return worst_s
