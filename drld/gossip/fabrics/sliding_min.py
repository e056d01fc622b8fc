"""The minimum of a value over a sliding window of time.

The value holds until the next one is given. The minimum of the last `span_ns` falls at once, and
rises when the value has stayed up for the whole span. Only values that may become the minimum are
kept (a monotonic queue). They are few, so a list costs less than a queue: a deque takes 600 bytes.
"""

from __future__ import annotations

from copy import copy

_NEVER = 1 << 62


class SlidingMin:
    """The minimum of the last `span_ns`."""

    __slots__ = ("_span_ns", "_steps")

    def __init__(self, span_ns: int) -> None:
        self._span_ns = span_ns
        self._steps: list[tuple[float, int]] = []
        """Rising values, each with the time until which it was the latest, ns."""

    def update(self, value: float, now_ns: int) -> float:
        """Set the value from now on; return the minimum."""
        steps = self._steps
        if not steps or steps[-1][0] != value:
            if steps:
                steps[-1] = steps[-1][0], now_ns
            while steps and value < steps[-1][0]:
                steps.pop()
            steps.append((value, _NEVER))
        while steps[0][1] <= now_ns - self._span_ns:
            del steps[0]
        return steps[0][0]

    def latest(self, now_ns: int) -> float:
        """The minimum, if the last value still holds; 0 if none was given."""
        return self.update(self._steps[-1][0], now_ns) if self._steps else 0.0

    def over(self, span_ns: int, factor: float = 1.0) -> SlidingMin:
        """A copy with another span, and all values multiplied by `factor`."""
        changed = copy(self)
        changed._span_ns = span_ns
        changed._steps = [(value * factor, until_ns) for value, until_ns in self._steps]
        return changed

    @property
    def settled(self) -> bool:
        """Whether the minimum stays the same until another value is given."""
        return len(self._steps) < 2
