"""The sliding-log queue, which the thesis designs (4.1.1) and rejects (4.1.3).

An element is the birth of an admitted request and lives `capacity / rate`. A request conforms if
fewer than `capacity` elements live. It refuses more than a token bucket: with capacity 4 and 1/s,
requests at 0.5, 1, 2, 3 and 4 s all pass a bucket, and the log refuses the fifth (figure 4.2). It
serves figures 4.1 and 4.2 (tests/unit/test_buckets.py), and has no replicas.
"""

from __future__ import annotations

from collections import deque

from drld.requests.buckets.policy import ADMITTED, Decision, Policy


class SlidingLog:
    """The log of one limiter."""

    __slots__ = ("_births_ns", "_policy")

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._births_ns: deque[int] = deque()

    def take(self, now_ns: int) -> Decision:
        """Admit a request of one token, or refuse it."""
        births, life_ns = self._births_ns, self._policy.fill_ns
        while births and births[0] + life_ns <= now_ns:
            births.popleft()
        if len(births) >= self._policy.capacity:
            return Decision(False, births[0] + life_ns - now_ns)
        births.append(now_ns)
        return ADMITTED
