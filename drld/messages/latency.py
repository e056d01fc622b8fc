"""Access delays of the last minute: a log-linear histogram, and a window of them.

Each power of two is divided into 2^n buckets of the same width (HdrHistogram's rule). So a quantile
is too large by at most a part 2^-n of itself, here 1/32, and a histogram has some 1,500 counts,
whatever it counts. The unit is a microsecond, because no network shows a smaller delay.

The window is divided into slots. The oldest slot is forgotten as a whole. So a figure covers the
last minute at most, and five sixths of it at least.
"""

from __future__ import annotations

from collections.abc import Iterable

from drld.model import NS_PER_S
from drld.police.waits import QUANTILES, Delays

_BITS = 5
"""The number n: a power of two has 2^n buckets."""
_UNIT_NS = 1000
_LONGEST_US = 2**50
"""The largest counted delay, 35 years in microseconds; longer delays count as this one."""
WINDOW_NS = 60 * NS_PER_S
_SLOTS = 6


class Histogram:
    """The number of occurrences of values."""

    __slots__ = ("_counts", "total", "zero")

    def __init__(self) -> None:
        self.zero = 0
        """The number of values of 0."""
        self.total = 0
        """The number of all values."""
        self._counts: dict[int, int] = {}

    def add(self, value_ns: int) -> None:
        """Count a value."""
        if value_ns <= 0:
            self.add_zeros(1)
            return
        self.total += 1
        bucket = _bucket(min(-(-value_ns // _UNIT_NS), _LONGEST_US))
        self._counts[bucket] = self._counts.get(bucket, 0) + 1

    def add_zeros(self, number: int) -> None:
        """Count this number of values of 0."""
        self.total += number
        self.zero += number

    def merge(self, other: Histogram) -> None:
        """Add the counts of another histogram."""
        self.total += other.total
        self.zero += other.zero
        for bucket, count in other._counts.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + count

    def quantiles(self, parts: Iterable[float]) -> list[int]:
        """The values at these parts of all n, sorted[int(part n)], ns.

        They are too large by at most 1/32 and a microsecond. `parts` are in ascending order.
        """
        found, below = [], self.zero
        buckets = iter(sorted(self._counts.items()))
        value_ns = 0
        for part in parts:
            rank = min(int(part * self.total), self.total - 1)
            while below <= rank:
                bucket, count = next(buckets)
                below += count
                value_ns = _largest(bucket) * _UNIT_NS
            found.append(value_ns)
        return found


def _bucket(value: int) -> int:
    """The number of the bucket of a value."""
    shift = max(value.bit_length() - _BITS - 1, 0)
    return (shift << _BITS) + (value >> shift)


def _largest(bucket: int) -> int:
    """The largest value of a bucket."""
    shift = max((bucket >> _BITS) - 1, 0)
    return ((bucket - (shift << _BITS) + 1) << shift) - 1


class DelayWindow:
    """The access delays of the last minute.

    Most messages do not wait. `Counts` counts them, and only their number comes here.
    """

    __slots__ = ("_at_once", "_begin_ns", "_slots")

    def __init__(self) -> None:
        self._slots = [Histogram()]
        """The slots; the last one is the present one."""
        self._at_once = 0
        """Messages without a delay that the slots have counted."""
        self._begin_ns: int | None = None
        """The time at which the present slot began."""

    def add(self, delay_ns: int) -> None:
        """Count a message that has waited."""
        self._slots[-1].add(delay_ns)

    def turn(self, now_ns: int, at_once: int) -> None:
        """Count the messages that did not wait; begin another slot if the present one is over.

        Args:
            now_ns: the time.
            at_once: the number of messages that did not wait, since the beginning.
        """
        if at_once != self._at_once:
            self._slots[-1].add_zeros(at_once - self._at_once)
            self._at_once = at_once
        if self._begin_ns is None:
            self._begin_ns = now_ns
        passed = (now_ns - self._begin_ns) * _SLOTS // WINDOW_NS
        if passed > 0:
            self._begin_ns += passed * WINDOW_NS // _SLOTS
            self._slots += [Histogram() for _ in range(min(passed, _SLOTS))]
            del self._slots[:-_SLOTS]

    def delays(self) -> Delays:
        """The delays that were counted until the last `turn`."""
        merged = Histogram()
        for slot in self._slots:
            merged.merge(slot)
        return Delays(merged.total, merged.quantiles(QUANTILES))
