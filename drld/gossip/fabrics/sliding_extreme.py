"""The minimum or maximum of a value over a sliding window of time.

The value holds until the next one is given. The minimum of the last `span_ns` falls at once, and
rises when the value has stayed up for the whole span. The maximum mirrors that. An update costs
constant time on average, because only values that may become the extreme are kept: the monotonic
queue of sliding-window minima.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from copy import copy
from operator import gt, lt

_NEVER = 1 << 62


class SlidingExtreme:
    """The extreme of the last `span_ns`; `sliding_min` and `sliding_max` make one."""

    __slots__ = ("_overrules", "_span_ns", "_steps")

    def __init__(self, span_ns: int, overrules: Callable[[float, float], bool]) -> None:
        self._span_ns = span_ns
        self._overrules = overrules
        """Whether a new value makes an earlier one irrelevant."""
        self._steps: deque[tuple[float, int]] = deque()
        """Values, and until when each was the latest; none is overruled by one after it."""

    def update(self, value: float, now_ns: int) -> float:
        """Set the value from now on; returns the extreme."""
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
        """The extreme, if the last value still holds; 0 if none was given."""
        return self.update(self._steps[-1][0], now_ns) if self._steps else 0.0

    def over(self, span_ns: int, factor: float = 1.0) -> SlidingExtreme:
        """A copy with another span, and all values multiplied by `factor`."""
        changed = copy(self)
        changed._span_ns = span_ns
        changed._steps = deque((value * factor, until_ns) for value, until_ns in self._steps)
        return changed

    @property
    def settled(self) -> bool:
        """Whether the extreme stays the same until another value is given."""
        return len(self._steps) < 2


def sliding_min(span_ns: int) -> SlidingExtreme:
    """A minimum: it falls at once and rises late."""
    return SlidingExtreme(span_ns, lt)


def sliding_max(span_ns: int) -> SlidingExtreme:
    """A maximum: it rises at once and falls late."""
    return SlidingExtreme(span_ns, gt)
