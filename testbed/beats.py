"""Detects processors that stand still: a thread on each measures how late it wakes up.

A virtual machine, or one of its processors, stops now and then for a tenth of a second or more.
Measurements during that time are about the host, not about the software that runs on it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from math import ceil
from types import TracebackType

BEAT_S = 0.02


class Beats:
    """Measures how late processors are, while entered; with the priority of the entering thread."""

    def __init__(self) -> None:
        self._late_s: dict[int, list[float]] = {it: [] for it in os.sched_getaffinity(0)}
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._beat, args=(processor,), daemon=True)
            for processor in self._late_s
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
            self._late_s[processor].append(time.monotonic() - due_s)
            due_s = time.monotonic() + BEAT_S

    def take(self, share: float = 1.0) -> float:
        """The lateness that this share of a processor's beats since the last call kept, seconds.

        It is that of the latest processor. The default is the largest lateness of any beat.
        """
        late_s, self._late_s = self._late_s, {processor: [] for processor in self._late_s}
        return max(kept(beats, share) for beats in late_s.values())


def kept(late_s: Sequence[float], share: float) -> float:
    """The least lateness that at least this share of the beats kept, seconds; 0 without a beat."""
    return sorted(late_s)[ceil(share * len(late_s)) - 1] if late_s else 0.0
