"""What limiters do not know when they admit a request: the figure of the bound on excess.

A limiter knows a token of another one if a message has told it. The bound says that the excess is
at most the tokens that the limiter who admits does not know (docs/replicated-buckets.md). Elements
of the thesis' queue do not say whose they are, so this is for counters and ledgers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from drld.requests.buckets.counter import CounterDelta


class Knowledge:
    """Who was told which tokens of whom, and the most that was not known."""

    def __init__(self, limiters: int) -> None:
        self.unknown = 0
        """The most tokens of other limiters that one did not know as it admitted a request."""
        self.age_ms = 0
        """The longest time since the first token that was not known, by count, at such a moment."""
        self._births_ms: defaultdict[int, defaultdict[int, list[int]]] = defaultdict(
            lambda: defaultdict(list)
        )
        """When each token was admitted, by user and origin."""
        self._told: list[dict[tuple[int, int, int], int]] = [{} for _ in range(limiters)]
        """Tokens by user, origin and slot, by limiter."""
        self._known: list[dict[tuple[int, int], int]] = [{} for _ in range(limiters)]
        """The same, without slots."""

    def told(self, number: int, user: Any, delta: Any) -> None:
        """A limiter was told this delta of a user."""
        told, known = self._told[number], self._known[number]
        for origin, slot, tokens in _entries(delta):
            more = tokens - told.get((user, origin, slot), 0)
            if more > 0:
                told[user, origin, slot] = tokens
                known[user, origin] = known.get((user, origin), 0) + more

    def forgets(self, number: int) -> None:
        """A limiter begins another life."""
        self._told[number], self._known[number] = {}, {}

    def admitted(self, number: int, origin: int, user: int, at_ms: int) -> None:
        """A limiter, with this origin in its present life, has admitted a request."""
        known, unknown = self._known[number], 0
        for other, births_ms in self._births_ms[user].items():
            if other != origin:
                count = known.get((user, other), 0)
                if count < len(births_ms):
                    unknown += len(births_ms) - count
                    self.age_ms = max(self.age_ms, at_ms - births_ms[count])
        self.unknown = max(self.unknown, unknown)
        self._births_ms[user][origin].append(at_ms)


def _entries(delta: Any) -> Iterator[tuple[int, int, int]]:
    """Origin, slot and tokens of what a delta of a counter or a ledger says."""
    if isinstance(delta, CounterDelta):
        yield from ((origin, 0, tokens) for origin, tokens in delta.counts)
    else:
        yield from ((cell.origin, cell.slot, cell.tokens) for cell in delta)
