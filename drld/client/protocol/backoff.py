"""The times of new attempts to reach a limiter: after 50 ms, then twice as long each time, up to 5
s.

Each wait is drawn from half of that to the whole, so that the processes of a host do not return at
the same moment.
"""

from __future__ import annotations

from random import Random

FIRST_NS = 50_000_000
"""A daemon restarts in about a second; most failures are one late answer."""
LONGEST_NS = 5_000_000_000
"""The longest time until a limiter that answers again is used."""


class Backoff:
    """The attempts to reach one limiter."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._wait_ns = FIRST_NS
        self._due_ns: int | None = None
        """The time of the next attempt, ns; None: now."""

    def ready(self, now_ns: int) -> bool:
        """Return whether to try."""
        return self._due_ns is None or now_ns >= self._due_ns

    def failed(self, now_ns: int) -> None:
        """Note that an attempt failed."""
        if not self.ready(now_ns):
            # Others had tried in the same time: that is one failure.
            return
        self._due_ns = now_ns + round(self._wait_ns * (1 + self._rng.random()) / 2)
        self._wait_ns = min(2 * self._wait_ns, LONGEST_NS)

    def succeeded(self) -> None:
        """Note that the limiter has answered."""
        self._wait_ns = FIRST_NS
        self._due_ns = None
