"""A log for a warning that may occur thousands of times a second."""

from __future__ import annotations

import logging

import trio

PERIOD_S = 10.0
"""Shortest time between two lines, in seconds."""


class ThrottledLog:
    """Logs at most one warning in `PERIOD_S`, with the number suppressed since the last one."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._times = 0
        self._silent_until = float("-inf")

    def warn(self, warning: str) -> None:
        """Log this warning, or only count it."""
        self._times += 1
        now = trio.current_time()
        if now < self._silent_until:
            return
        again = f" (and {self._times - 1} times before)" if self._times > 1 else ""
        self._log.warning("%s%s", warning, again)
        self._times = 0
        self._silent_until = now + PERIOD_S
