"""The arrivals of a limit's messages, recorded for a profile, in bounded memory."""

from __future__ import annotations

from array import array

MOST = 200_000
"""Arrivals that are kept until they are taken, 1.6 MB: two seconds of a fast daemon."""


class Recording:
    """Arrivals that have not been taken yet."""

    __slots__ = ("_arrivals", "_last_ns", "_most", "missed")

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._arrivals = array("q")
        self._last_ns = 0
        self.missed = 0
        """Arrivals for which there was no room."""

    def add(self, now_ns: int) -> None:
        """Record an arrival; an earlier one counts as of the last."""
        if len(self._arrivals) >= self._most:
            self.missed += 1
            return
        self._last_ns = max(self._last_ns, now_ns)
        self._arrivals.append(self._last_ns)

    def take(self) -> list[int]:
        """Take out what has been recorded, ns."""
        taken, self._arrivals = self._arrivals, array("q")
        return taken.tolist()
