"""The mean rate and the largest backlog of the last seconds, in steps (SRTM 2021, section V-D).

The paper's brokers report both over a window of 10 s, in increments of 1 s. A step counts when it
has ended. While the window is not full, the mean is that of the steps so far.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from drld.model import NS_PER_S


class _Step(NamedTuple):
    lasted_ns: int
    arrived: float
    backlog: int


class History:
    """The arrivals and backlogs of one limit on one limiter."""

    __slots__ = ("_arrived", "_backlog", "_lasted_ns", "_step_ns", "_steps", "window_ns")

    def __init__(self, window_ns: int, step_ns: int) -> None:
        self.window_ns = window_ns
        self._step_ns = step_ns
        self._steps: deque[_Step] = deque()
        """The ended steps of the window."""
        self._begin()

    def _begin(self) -> None:
        self._lasted_ns = 0
        """The length of the present step so far, ns; the next two values are of the same step."""
        self._arrived = 0.0
        self._backlog = 0

    def update(self, arrived: float, backlog: int, interval_ns: int) -> None:
        """Add an interval: the tokens that arrived in it, and its largest backlog, tokens."""
        self._lasted_ns += interval_ns
        self._arrived += arrived
        self._backlog = max(self._backlog, backlog)
        if self._lasted_ns < self._step_ns:
            return
        steps = self._steps
        steps.append(_Step(self._lasted_ns, self._arrived, self._backlog))
        self._begin()
        lasted_ns = sum(step.lasted_ns for step in steps)
        while lasted_ns - steps[0].lasted_ns >= self.window_ns:
            lasted_ns -= steps.popleft().lasted_ns

    @property
    def rate(self) -> float:
        """Mean rate of arrival in the window, tokens/s; 0 before the first step has ended."""
        lasted_ns = sum(step.lasted_ns for step in self._steps)
        arrived = sum(step.arrived for step in self._steps)
        return arrived * NS_PER_S / lasted_ns if lasted_ns else 0.0

    @property
    def backlog(self) -> int:
        """The largest backlog in the window, tokens."""
        return max((step.backlog for step in self._steps), default=0)

    @property
    def silent(self) -> bool:
        """Whether nothing arrived in the window, nor since."""
        return not (self._arrived or self._backlog or self.rate or self.backlog)
