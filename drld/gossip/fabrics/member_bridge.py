"""The number of limiters in a tree, which falls only when it has been lower for a span of time.

The orphans of a dead limiter are missing until they have another parent
(`fabrics.tree_membership`). The span bridges that time.

A limiter counts at each look. The demand of a silent neighbour is forgotten at a fixed time after
its last update. The number must fall before that, or the whole limit would be in force where no
demand divides it. A daemon that was frozen has missed looks. So its first look also counts the
limiters at the times of the missed looks, by the updates that it has.

Bound. Let a neighbour's last update arrive at 0, and I be the longest time between two looks. A
daemon that runs counts it as silent at its first look after 11 I, and the number has fallen at its
first look after 17 + h intervals: before 19 + h. Its demand counts until 26 + 2 h. With missed
looks the same holds at the late look, as they are at most I apart. Updates that a frozen daemon
finds in its socket do not help: they count from the time at which it was last empty. A look that
finds no lower number than the look before needs no missed looks: the largest number can then only
be too small, which leaves shares unused.
"""

from __future__ import annotations

from collections.abc import Callable

from drld.gossip.fabrics.sliding_extreme import sliding_max


class MemberBridge:
    """A sliding maximum that catches up on missed looks."""

    __slots__ = ("_interval_ns", "_largest", "_last", "_span_ns")

    def __init__(self, span_ns: int, interval_ns: int) -> None:
        """`interval_ns` is the longest time between two looks of a daemon that runs."""
        self._span_ns = span_ns
        self._interval_ns = interval_ns
        self._largest = sliding_max(span_ns)
        self._last: tuple[int, int] | None = None
        """The number at the last look, and the time of that, ns."""

    def update(self, now_ns: int, members: int, members_at: Callable[[int], int]) -> int:
        """Count the limiters at a look; return the largest number of the last `span_ns`.

        Args:
            now_ns: the time of the look.
            members: the number now.
            members_at: returns the number at an earlier time, by the updates received until now.
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
