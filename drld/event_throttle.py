"""Few lines about what happens often: a throttle for log events, by event and subject.

Each key has windows of one period. In a window the first `burst` items pass, and the others are
left out. When it ends, the latest of those is let through, with their number, and begins the next
window. So a reader always sees the latest state, and knows of every item. Windows of a key do not
overlap, so there are at most 2 `burst` items in any time of one period. Pure: time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
Key = tuple[str, str]
"""An event and its subject, such as a peer."""

MAX_KEYS = 10_000
"""Windows at a time: more subjects than that share one for each event."""


class Passed(NamedTuple, Generic[T]):
    """An item that is let through."""

    item: T
    left_out: int
    """Items of its key before it that were not."""


class _Window(Generic[T]):
    __slots__ = ("end_ns", "latest", "left_out", "passed")

    def __init__(self, end_ns: int) -> None:
        self.end_ns = end_ns
        self.passed = 1
        self.left_out = 0
        self.latest: T | None = None


class EventThrottle(Generic[T]):
    """Lets the first few items of each key through, and sums up the others."""

    def __init__(self, burst: int, period_ns: int) -> None:
        self._burst = burst
        self._period_ns = period_ns
        self._windows: dict[Key, _Window[T]] = {}
        """The open windows by key, in the order of their ends."""

    def admit(self, key: Key, item: T, now_ns: int) -> Iterator[Passed[T]]:
        """Take an item; yield what is let through now. Time never goes back."""
        yield from self.due(now_ns)
        if key not in self._windows and len(self._windows) >= MAX_KEYS:
            key = (key[0], "")
        window = self._windows.get(key)
        if window is None:
            self._windows[key] = _Window(now_ns + self._period_ns)
            yield Passed(item, 0)
        elif window.passed < self._burst:
            window.passed += 1
            yield Passed(item, 0)
        else:
            window.left_out += 1
            window.latest = item

    def due(self, now_ns: int) -> Iterator[Passed[T]]:
        """Yield the sums of the windows that have ended."""
        while self._windows:
            key, window = next(iter(self._windows.items()))
            if now_ns < window.end_ns:
                return
            del self._windows[key]
            if window.latest is not None:
                self._windows[key] = _Window(now_ns + self._period_ns)
                yield Passed(window.latest, window.left_out - 1)

    def rest(self) -> Iterator[Passed[T]]:
        """Yield the sums of all windows, at the end."""
        windows, self._windows = self._windows, {}
        for window in windows.values():
            if window.latest is not None:
                yield Passed(window.latest, window.left_out - 1)

    def forget(self, gone: Callable[[Key], bool]) -> None:
        """Say nothing more about the subjects that have gone."""
        self._windows = {key: it for key, it in self._windows.items() if not gone(key)}
