"""CUBIC's congestion window, in segments, as Linux has it (RFC 9438, net/ipv4/tcp_cubic.c).

After a loss the window is 717/1024 (0.7) of W, the window before. From then on it follows

    W(t) = C (t - K)**3 + W        K = cbrt((W - window) / C), C = 0.4 segments a second cubed

where t counts from the first growth after the loss, plus the least round-trip time. A loss below
the last W shows that other flows need room: the next W is then 1.7/2 of the window (fast
convergence). The window is at least that of New Reno with the same factor, which grows by 8/15
segments a round trip (`_reno`, RFC 9438 section 4.3; Linux: tcp_friendliness).

Details of Linux: the window grows by at most a half in a round trip, and by at least a twentieth
before the first loss. A timeout resets all state. Linux computes in jiffies and units of 1/1024 s,
this file in seconds.

Deviation: there is no HyStart, which ends slow start before a loss if delays grow. A policer has no
queue, so delays hardly grow, and the first loss ends slow start.
"""

from __future__ import annotations

from testbed.tcp.congestion import LEAST_WINDOW, Congestion

_NS_PER_S = 1_000_000_000
_C = 0.4
_BETA, _SCALE = 717, 1024
_RENO_EIGHTHS = 8 * (_SCALE + _BETA) // 3 // (_SCALE - _BETA)
"""Deliveries, in eighths of a window, for one more segment of New Reno's window: beta_scale."""
_REFRESH_NS = _NS_PER_S // 32
"""Time for which the rate of growth is kept while the window does not change."""
_JIFFY_NS = 4_000_000
_LEAST_EVERY = 2
_MOST_EVERY_UNKNOWN = 20
"""Deliveries for one more segment of the window: the minimum, and the maximum before a loss."""
_HARDLY = 100
"""Windows delivered for one more segment while the curve is below the window."""


class Cubic(Congestion):
    """Window and threshold of one sender."""

    __slots__ = (
        "_acknowledged", "_begin_ns", "_every", "_inflection_s", "_last_ns", "_last_window",
        "_most", "_origin", "_reno",
    )  # fmt: skip

    def __init__(self, window: int) -> None:
        super().__init__(window)
        self._reset()

    def _reset(self) -> None:
        """bictcp_reset()."""
        self._most = 0
        """W, the window before the last loss; 0 before the first loss."""
        self._begin_ns: int | None = None
        """Time of the first growth since the last loss."""
        self._inflection_s = 0.0
        """K, the time at which the curve reaches W, s."""
        self._origin = 0
        """The window at K."""
        self._reno = 0
        """The window of New Reno with the same factor."""
        self._acknowledged = 0
        """Deliveries counted towards the next segment of New Reno's window."""
        self._every = 0
        """Deliveries for one more segment of the window."""
        self._last_window = 0
        self._last_ns = 0

    def time_out(self, in_flight: int, again: bool) -> None:
        """See `Congestion`; resets all state."""
        super().time_out(in_flight, again)
        self._reset()

    def _lower(self) -> int:
        """cubictcp_recalc_ssthresh()."""
        self._begin_ns = None
        window = self.window
        converging = window < self._most
        self._most = window * (_SCALE + _BETA) // (2 * _SCALE) if converging else window
        return max(window * _BETA // _SCALE, LEAST_WINDOW)

    def _avoid(self, delivered: int, now_ns: int, least_rtt_ns: int) -> None:
        """cubictcp_cong_avoid()."""
        self._update(delivered, now_ns, least_rtt_ns)
        self._add(delivered, self._every)

    def _update(self, delivered: int, now_ns: int, least_rtt_ns: int) -> None:
        """bictcp_update()."""
        window = self.window
        self._acknowledged += delivered
        since_ns = now_ns - self._last_ns
        if self._last_window == window and since_ns <= _REFRESH_NS:
            return
        if self._begin_ns is None or since_ns >= _JIFFY_NS:
            self._follow(window, delivered, now_ns, least_rtt_ns)
        per_segment = window * _RENO_EIGHTHS // 8
        while self._acknowledged > per_segment:
            self._acknowledged -= per_segment
            self._reno += 1
        if self._reno > window:
            self._every = min(self._every, window // (self._reno - window))
        self._every = max(self._every, _LEAST_EVERY)

    def _follow(self, window: int, delivered: int, now_ns: int, least_rtt_ns: int) -> None:
        """The rate of growth that follows the curve."""
        self._last_window, self._last_ns = window, now_ns
        if self._begin_ns is None:
            self._begin_ns = now_ns
            self._acknowledged = delivered
            self._reno = window
            self._inflection_s = (max(self._most - window, 0) / _C) ** (1 / 3)
            self._origin = max(self._most, window)
        after_s = (now_ns - self._begin_ns + least_rtt_ns) / _NS_PER_S - self._inflection_s
        # Linux truncates the distance from W. So before K, the target is above the curve.
        distance = int(_C * abs(after_s) ** 3)
        target = self._origin + (distance if after_s > 0 else -distance)
        self._every = window // (target - window) if target > window else _HARDLY * window
        if not self._most:
            self._every = min(self._every, _MOST_EVERY_UNKNOWN)
