"""Calls that are due at a time, unless they are cancelled."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Protocol

_FEW = 64
"""Cancelled deadlines that stay in the heap in any case."""


class Owner(Protocol):
    """A connection, as the object to which a call belongs."""

    def fail(self) -> None:
        """Close the connection, because its handling has raised an error."""


class Deadline:
    """One call that is due at a time."""

    __slots__ = ("act", "at_ns", "owner")

    def __init__(self, at_ns: int, act: Callable[[], None], owner: Owner | None) -> None:
        self.at_ns = at_ns
        self.owner = owner
        """The connection that an error in the call ends; None: it belongs to no connection."""
        self.act: Callable[[], None] | None = act
        """The function to call; None: the deadline was cancelled, or the call is done."""

    def __lt__(self, other: Deadline) -> bool:
        return self.at_ns < other.at_ns


class Deadlines:
    """The deadlines of a pump."""

    def __init__(self) -> None:
        self._heap: list[Deadline] = []
        self._off = 0
        """The number of cancelled deadlines in the heap."""

    def add(self, at_ns: int, act: Callable[[], None], owner: Owner | None = None) -> Deadline:
        """Call `act` at this time or soon after."""
        deadline = Deadline(at_ns, act, owner)
        heappush(self._heap, deadline)
        return deadline

    def cancel(self, deadline: Deadline | None) -> None:
        """Cancel a deadline, if there is one and its call is not done."""
        if deadline is None or deadline.act is None:
            return
        deadline.act = None
        self._off += 1
        if self._off > _FEW and self._off > len(self._heap) // 2:
            # Most connections end long before their deadlines.
            self._heap = [it for it in self._heap if it.act is not None]
            heapify(self._heap)
            self._off = 0

    @property
    def next_ns(self) -> int | None:
        """The time of the first deadline, or an earlier time; None: there is no deadline."""
        return self._heap[0].at_ns if self._heap else None

    def run(self, now_ns: int, guard: Callable[[Owner | None, Callable[[], None]], None]) -> None:
        """Make the calls that are due; `guard` makes each, and handles its errors."""
        while self._heap and self._heap[0].at_ns <= now_ns:
            deadline = heappop(self._heap)
            act, deadline.act = deadline.act, None
            if act is None:
                self._off -= 1
            else:
                guard(deadline.owner, act)
