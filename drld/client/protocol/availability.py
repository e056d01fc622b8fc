"""Whether the limiter answers, its limits, and the decisions while it does not answer.

All clients use it, whatever event loop they have. It does no I/O: a client gives it the time and
the events, and logs the lines that it returns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from drld.client.protocol.backoff import Backoff
from drld.client.protocol.fallback import Fallback
from drld.client.protocol.limit_table import LimitTable
from drld.client.protocol.model import Answer, Question

REFRESH_NS = 30_000_000_000
"""The age at which a client asks for the limits again."""
AGAIN_NS = 1_000_000_000
"""The time after which it asks again if none have come: the call that asked may have been
cancelled."""
QUIET_NS = 60_000_000_000
"""The least time between two log lines about a limiter that does not answer."""


class Availability:
    """The availability of one limiter, for one process."""

    def __init__(self, rng: Random, on_failure: str) -> None:
        """Assume nothing about the limiter.

        Args:
            rng: spreads the times of new attempts.
            on_failure: decides until the limiter has sent its limits.

        Raises:
            ValueError: `on_failure` is neither `open` nor `closed`.
        """
        if on_failure not in {"open", "closed"}:
            raise ValueError(f'on_failure: must be "open" or "closed" (got {on_failure!r})')
        self._backoff = Backoff(rng)
        self._fallback = Fallback(on_failure)
        self._asked_ns = 0
        """The time of the last question for the limits, ns."""
        self._due_ns: int | None = None
        """The time of the next one, ns; None: now."""
        self._said_ns: int | None = None
        self._said_down = False
        """Whether the last line for the log says that the limiter does not answer."""
        self._down = False
        # All from the start: threads that add to one at the same moment lose nothing then.
        self.counts = Counter(answered=0, degraded=0, failures=0, leased=0, lost=0)
        """See `drld.client.base.BaseClient.counts`."""

    @property
    def table(self) -> LimitTable | None:
        """The limits that the limiter has sent last; None: it has sent none."""
        return self._fallback.table

    def may_ask(self, now_ns: int) -> bool:
        """Return whether to ask the limiter."""
        return self._backoff.ready(now_ns)

    def wants_limits(self, now_ns: int) -> bool:
        """Return whether to ask for the limits as well; the next call returns no."""
        wanted = self._due_ns is None or now_ns >= self._due_ns
        if wanted:
            self._asked_ns, self._due_ns = now_ns, now_ns + AGAIN_NS
        return wanted

    def learn(self, table: LimitTable) -> None:
        """Use these limits, which the limiter has sent."""
        self._fallback.learn(table)
        self._due_ns = self._asked_ns + REFRESH_NS

    def answered(self, number: int) -> str | None:
        """Note this many answers; return a line for the log, or None."""
        self.counts["answered"] += number
        if not self._down:
            return None
        self._down = False
        self._backoff.succeeded()
        if not self._said_down:
            return None
        self._said_down = False
        return f"the limiter answers again; decided without it so far: {self.counts['degraded']}"

    def failed(self, reason: object, now_ns: int) -> str | None:
        """Note that the limiter did not answer; return a line for the log, or None."""
        self.counts["failures"] += 1
        self._down = True
        self._due_ns = None
        self._backoff.failed(now_ns)
        if self._said_ns is not None and now_ns - self._said_ns < QUIET_NS:
            return None
        self._said_ns, self._said_down = now_ns, True
        return f"the limiter does not answer ({reason}): on_failure of each limit decides"

    def without(self, questions: Sequence[Question], now_ns: int) -> list[Answer]:
        """Decide without the limiter."""
        self.counts["degraded"] += len(questions)
        return [self._fallback.decide(question, now_ns) for question in questions]
