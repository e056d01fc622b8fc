"""Round-trip time and retransmission timeout, by RFC 6298 and as Linux computes them.

The smoothed time S gains an eighth of each sample's deviation, the mean deviation D a quarter. The
timeout is S + V, where V is the largest 4 D of the last round trip or two, at least 200 ms
(`tcp_rtt_estimator`). With paths of 40 ms it is hardly ever more than 240 ms. It doubles each time
that it expires, until a new sample comes. It is counted in whole jiffies.
"""

from __future__ import annotations

from testbed.tcp.timer import whole_jiffies_ns

MIN_RTO_NS = 200_000_000
MAX_RTO_NS = 120_000_000_000
INITIAL_RTO_NS = 1_000_000_000


class RoundTrip:
    """A sender's estimates of its path."""

    __slots__ = (
        "_deviation_ns",
        "_largest_ns",
        "_round_ends",
        "_variation_ns",
        "backoff",
        "minimum_ns",
        "smoothed_ns",
    )

    def __init__(self) -> None:
        self.smoothed_ns = 0
        """S, ns; 0 before the first sample."""
        self.minimum_ns = 0
        self.backoff = 0
        """Number of doublings of the timeout."""
        self._deviation_ns = 0
        """4 D, ns."""
        self._largest_ns = 0
        """The largest 4 D of this round trip, ns."""
        self._variation_ns = 0
        """V, the part of the timeout above S, ns."""
        self._round_ends = 0
        """The segment whose acknowledgement ends this round trip."""

    @property
    def timeout_ns(self) -> int:
        """The retransmission timeout, ns."""
        base = self.smoothed_ns + self._variation_ns if self.smoothed_ns else INITIAL_RTO_NS
        return min(whole_jiffies_ns(base) << self.backoff, MAX_RTO_NS)

    def sample(self, rtt_ns: int, una: int, next_: int) -> None:
        """Add a sample; `una`: the first segment not acknowledged; `next_`: the next one."""
        self.backoff = 0
        if not self.smoothed_ns:
            self.smoothed_ns = self.minimum_ns = rtt_ns
            self._deviation_ns = 2 * rtt_ns
            self._variation_ns = self._largest_ns = max(self._deviation_ns, MIN_RTO_NS)
            self._round_ends = next_
            return
        self.minimum_ns = min(self.minimum_ns, rtt_ns)
        error_ns = rtt_ns - self.smoothed_ns
        self.smoothed_ns += error_ns // 8
        more_ns = abs(error_ns) - self._deviation_ns // 4
        # A falling round trip widens the timeout less.
        self._deviation_ns += more_ns // 8 if error_ns < 0 < more_ns else more_ns
        if self._deviation_ns > self._largest_ns:
            self._largest_ns = self._deviation_ns
            self._variation_ns = max(self._variation_ns, self._largest_ns)
        if una > self._round_ends:
            if self._largest_ns < self._variation_ns:
                self._variation_ns -= (self._variation_ns - self._largest_ns) // 4
            self._round_ends = next_
            self._largest_ns = MIN_RTO_NS
