"""The number of counted limiters, which falls only when it has been lower for a span of time.

Orphans of a dead limiter need this time to find another parent (`fabrics.tree_membership`).

A limiter counts at each look. A daemon that was frozen has missed looks, and neighbours fell silent
meanwhile. Their demand is forgotten at a fixed time after their last update. If their number fell
later than that, the whole limit would be in force where no demand divides it. So a late look counts
the limiters at the missed looks, too.
"""

from __future__ import annotations

from collections.abc import Callable

from drld.gossip.fabrics.sliding_extreme import sliding_max


class MemberBridge:
    """A sliding maximum that catches up on missed looks."""

    __slots__ = ("_interval_ns", "_largest", "_last", "_span_ns")

    def __init__(self, span_ns: int, interval_ns: int) -> None:
        """`interval_ns`: the longest time between two looks of a daemon that runs."""
        self._span_ns = span_ns
        self._interval_ns = interval_ns
        self._largest = sliding_max(span_ns)
        self._last: tuple[int, int] | None = None
        """The number at the last look, and the time of that, ns."""

    def update(self, now_ns: int, members: int, members_at: Callable[[int], int]) -> int:
        """Count at a look; returns the largest number of the last `span_ns`.

        Args:
            now_ns: the time of the look.
            members: the number now.
            members_at: the number at an earlier time, by all that was heard up to now.
        """
        if self._last is not None and members < self._last[0]:
            begin_ns = max(self._last[1] + self._interval_ns, now_ns - self._span_ns)
            for missed_ns in range(begin_ns, now_ns, self._interval_ns):
                self._largest.update(members_at(missed_ns), missed_ns)
        self._last = members, now_ns
        return round(self._largest.update(members, now_ns))

    def over(self, span_ns: int) -> MemberBridge:
        """A copy with another span."""
        changed = MemberBridge(span_ns, self._interval_ns)
        changed._largest = self._largest.over(span_ns)
        changed._last = self._last
        return changed

    @property
    def settled(self) -> bool:
        """Whether the number stays the same until another one is counted."""
        return self._largest.settled
