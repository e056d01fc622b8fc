"""A number that follows another one, and rises or falls only when that has lasted.

The least (or largest) value of the last `span_ns`, of a number that keeps each value until the next
is given: it falls (rises) at once, and rises (falls) when the other has been up (down) for the
span. Each value costs constant time on average, as only those are kept that may come to be the
least: the monotonic queue of sliding-window minima.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from operator import gt, lt

_NEVER = 1 << 62


class Extreme:
    """The extreme of the last `span_ns`."""

    __slots__ = ("_overrules", "_span_ns", "_steps")

    def __init__(self, span_ns: int, overrules: Callable[[float, float], bool]) -> None:
        self._span_ns = span_ns
        self._overrules = overrules
        """Whether a value that comes makes one before it irrelevant."""
        self._steps: deque[tuple[float, int]] = deque()
        """Values, and until when each was the latest; none is overruled by one after it."""

    def update(self, value: float, now_ns: int) -> float:
        """The value from now on is this; the extreme."""
        steps = self._steps
        if not steps or steps[-1][0] != value:
            if steps:
                steps[-1] = steps[-1][0], now_ns
            while steps and self._overrules(value, steps[-1][0]):
                steps.pop()
            steps.append((value, _NEVER))
        while steps[0][1] <= now_ns - self._span_ns:
            steps.popleft()
        return steps[0][0]

    def latest(self, now_ns: int) -> float:
        """The extreme, with the value that was given last; 0 where none was."""
        return self.update(self._steps[-1][0], now_ns) if self._steps else 0.0

    def over(self, span_ns: int, factor: float = 1.0) -> Extreme:
        """The same of another span, as if all values had been so many times as large."""
        changed = Extreme(span_ns, self._overrules)
        changed._steps.extend((value * factor, until_ns) for value, until_ns in self._steps)
        return changed

    @property
    def settled(self) -> bool:
        """Whether the extreme stays what it is until another value is given."""
        return len(self._steps) < 2


def least(span_ns: int) -> Extreme:
    """What rises late."""
    return Extreme(span_ns, lt)


def largest(span_ns: int) -> Extreme:
    """What falls late."""
    return Extreme(span_ns, gt)
