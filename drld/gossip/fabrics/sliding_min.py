"""The minimum of a value over a sliding window of time.

The value holds until the next one is given. The minimum of the last `span_ns` falls at once, and
rises when the value has stayed up for the whole span. Only values that may become the minimum are
kept (a monotonic queue). A limiter has three minima for each limit, and most values never change.
So the latest value has a place of its own, and a list is made only for earlier ones.
"""

from __future__ import annotations

from copy import copy


class SlidingMin:
    """The minimum of the last `span_ns`."""

    __slots__ = ("_earlier", "_latest", "_span_ns")

    def __init__(self, span_ns: int) -> None:
        self._span_ns = span_ns
        self._latest: float | None = None
        self._earlier: list[tuple[float, int]] | None = None
        """Earlier values, rising up to the latest, each with the time until which it was the
        latest, ns; None: there are none."""

    def update(self, value: float, now_ns: int) -> float:
        """Set the value from now on; return the minimum."""
        earlier, latest = self._earlier, self._latest
        self._latest = value
        if latest is not None and latest < value:
            if earlier is None:
                earlier = self._earlier = []
            earlier.append((latest, now_ns))
        elif earlier is None:
            return value
        while earlier and earlier[-1][0] > value:
            earlier.pop()
        while earlier and earlier[0][1] <= now_ns - self._span_ns:
            del earlier[0]
        if earlier:
            return earlier[0][0]
        self._earlier = None
        return value

    def latest(self, now_ns: int) -> float:
        """The minimum, if the last value still holds; 0 if none was given."""
        return 0.0 if self._latest is None else self.update(self._latest, now_ns)

    def over(self, span_ns: int, factor: float = 1.0) -> SlidingMin:
        """A copy with another span, and all values multiplied by `factor`."""
        changed = copy(self)
        changed._span_ns = span_ns
        if self._latest is not None:
            changed._latest = self._latest * factor
        if self._earlier is not None:
            changed._earlier = [(value * factor, until_ns) for value, until_ns in self._earlier]
        return changed

    @property
    def settled(self) -> bool:
        """Whether the minimum stays the same until another value is given."""
        return self._earlier is None
