"""Virtual time: events by time, and simultaneous events in the order of their scheduling.

An event is an action and its one argument. It cannot be cancelled, so an action must ignore an
event that is no longer wanted (see `testbed.tcp.timer`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

Action = Callable[[Any], object]


class Clock:
    """The time, ns, and the scheduled events."""

    __slots__ = ("_events", "_order", "now_ns")

    def __init__(self, now_ns: int = 0) -> None:
        self.now_ns = now_ns
        self._events: list[tuple[int, int, Action, Any]] = []
        self._order = 0

    def at(self, when_ns: int, action: Action, argument: Any = None) -> None:
        """Schedule `action(argument)`; simultaneous events run in the order of these calls."""
        self._order += 1
        heapq.heappush(self._events, (when_ns, self._order, action, argument))

    def run(self, until_ns: int) -> None:
        """Run all events up to this time, inclusive."""
        events, pop = self._events, heapq.heappop
        while events and events[0][0] <= until_ns:
            self.now_ns, _, action, argument = pop(events)
            action(argument)
        self.now_ns = until_ns
