"""The congestion window of New Reno, in segments.

Slow start and congestion avoidance (RFC 5681) count the segments that were delivered, as Linux's
`tcp_reno_cong_avoid` does. A reduction halves the window. Proportional rate reduction (RFC 6937,
with Linux's reduction bound) decides the sending meanwhile. Above the new threshold it permits new
segments in proportion, such as one for two delivered. Below it, it permits the delivered number,
and one more if the acknowledgement advances and reports no new loss.
"""

from __future__ import annotations

INITIAL_WINDOW = 10
"""The first window, segments (RFC 6928)."""
LEAST_WINDOW = 2
UNKNOWN = 1 << 30
"""Value of a threshold that was never set."""


class Congestion:
    """Window and threshold of one sender."""

    __slots__ = ("_before", "_delivered", "_grown", "_prior", "_sent", "threshold", "window")

    paced = False
    """Whether segments leave one by one, `gap_ns` apart, instead of as the window permits."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.threshold = UNKNOWN
        self._grown = 0
        """Deliveries counted towards the next segment of the window."""
        self._prior = self._delivered = self._sent = 0
        """The present reduction: the window before it, segments delivered and sent since."""
        self._before: tuple[int, int] | None = None
        """Window and threshold before the timeout."""

    def grow(self, delivered: int, out: int, limited: bool, now_ns: int, least_rtt_ns: int) -> None:
        """Count segments delivered outside a reduction: tcp_reno_cong_avoid().

        A window that does not limit the sender (`limited`) does not grow, except in slow start, up
        to twice the segments in flight.
        """
        slow_start = self.window < self.threshold
        if not limited and not (slow_start and self.window < 2 * out):
            return
        if slow_start:
            grown = min(self.window + delivered, self.threshold)
            delivered -= grown - self.window
            self.window = grown
            if not delivered:
                return
        self._avoid(delivered, now_ns, least_rtt_ns)

    def _avoid(self, delivered: int, now_ns: int, least_rtt_ns: int) -> None:  # noqa: ARG002 -- CUBIC
        """Congestion avoidance: one segment a window."""
        self._add(delivered, self.window)

    def _add(self, delivered: int, every: int) -> None:
        """Add a segment to the window for `every` delivered ones: tcp_cong_avoid_ai()."""
        if self._grown >= every:
            self._grown = 0
            self.window += 1
        self._grown += delivered
        if self._grown >= every:
            more = self._grown // every
            self._grown -= more * every
            self.window += more

    def begin_reduction(self) -> None:
        """tcp_init_cwnd_reduction()."""
        self._grown = 0
        self._prior = self.window
        self._delivered = self._sent = 0
        self.threshold = self._lower()

    def reduce(self, delivered: int, in_flight: int, lost: int, advanced: bool) -> None:
        """Set the window during a reduction: tcp_cwnd_reduction()."""
        if delivered <= 0 or not self._prior:
            return
        room = self.threshold - in_flight
        self._delivered += delivered
        if room < 0:
            count = -(-self.threshold * self._delivered // self._prior) - self._sent
        else:
            count = max(self._delivered - self._sent, delivered)
            if advanced and not lost:
                count += 1
            count = min(room, count)
        # At least one: the first segment sent again.
        self.window = in_flight + max(count, 0 if self._sent else 1)

    def sent(self, segments: int) -> None:
        """Count segments sent in the present reduction."""
        self._sent += segments

    def end_reduction(self) -> None:
        """tcp_end_cwnd_reduction()."""
        self.window = self.threshold

    def time_out(self, in_flight: int, again: bool) -> None:
        """Begin with one segment more than is in flight; unless `again`, halve the threshold."""
        if not again:
            self._before = self.window, self.threshold
            self.threshold = self._lower()
        self.window = in_flight + 1
        self._grown = 0

    def undo(self) -> bool:
        """The timeout was premature: restore the state before it; return whether there was one."""
        if self._before is None:
            return False
        window, threshold = self._before
        self.window = max(self.window, window)
        self.threshold = max(self.threshold, threshold)
        self._before = None
        return True

    def _lower(self) -> int:
        """The threshold after a loss: tcp_reno_ssthresh()."""
        return max(self.window // 2, LEAST_WINDOW)

    # Only paced controls use these.

    @property
    def gap_ns(self) -> int:
        """Least time between the starts of two segments."""
        return 0

    def transmitted(self, segment: int, out: int, now_ns: int) -> None:
        """A segment leaves (again); `out`: segments under way without it."""

    def observe(
        self,
        newest: int,
        una: int,
        delivered: int,
        in_flight: int,
        *,
        now_ns: int,
        least_rtt_ns: int,
    ) -> None:
        """Process an acknowledgement.

        Args:
            newest: the last-sent segment of all that arrived.
            una: the first segment that is not acknowledged.
            delivered: number of segments that arrived.
            in_flight: estimated number of segments in the network.
            now_ns: the time.
            least_rtt_ns: the shortest round trip ever seen.
        """
