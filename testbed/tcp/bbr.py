"""A model of BBR: a sender that paces at the best recent rate and ignores losses.

Not Linux's tcp_bbr.c, but its principle (Cardwell et al., "BBR: Congestion-Based Congestion
Control", 2016), so that there is traffic that does not answer losses as New Reno and CUBIC do:

- Each acknowledgement measures the delivery rate: the segments that have arrived since the newest
  acknowledged segment was sent, over that time (Linux's rate sample, net/ipv4/tcp_rate.c).
- The bottleneck's rate is the highest delivery rate of 10 round trips. Its delay is the least round
  trip ever seen. Their product is the path's capacity.
- Start: paced at 2.89 times the rate, until three round trips in a row did not raise it by a
  quarter; then at 1/2.89 of it until the segments in flight fit into the path.
- From then on, in turn, a least round trip each: 1.25, 0.75, and six times 1 of the rate.
- The window is twice the path's capacity (2.89 times in the start), at least 4 segments.

Deviations. This model lacks the detection of policers (long-term rate sampling), which ends the
losses of a lone flow after some seconds. It also lacks packet conservation in the first round trip
of a recovery, the window of 4 segments each 10 s, and allowances for aggregated acknowledgements.
Versions 2 and 3, which do respond to losses, are not modelled.
"""

from __future__ import annotations

from collections import deque

from testbed.tcp.congestion import Congestion

START_GAIN = 2.885
CYCLE = (1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
_WINDOW_GAIN = 2.0
_ROUNDS = 10
_GROWTH = 1.25
_FLAT_ROUNDS = 3
_LEAST_WINDOW = 4


class BbrModel(Congestion):
    """Window and pace of one sender; neither depends on losses or timeouts."""

    __slots__ = (
        "_arrived", "_arrived_ns", "_best", "_cycle_ns", "_flat", "_gain", "_kept_from", "_phase",
        "_plateau", "_round", "_round_ends", "_sent_when", "_starting",
    )  # fmt: skip

    paced = True

    def __init__(self, window: int) -> None:
        super().__init__(window)
        self._arrived = 0
        """Number of segments that had arrived at the last acknowledgement."""
        self._arrived_ns = 0
        """The time of the last acknowledgement, ns."""
        self._sent_when: dict[int, tuple[int, int]] = {}
        """`_arrived` and `_arrived_ns` at the sending of each segment under way."""
        self._kept_from = 0
        """The first segment in `_sent_when`."""
        self._best: deque[tuple[int, float]] = deque()
        """(round, segments/ns): rates that no later rate exceeded, the highest first."""
        self._round = 0
        self._round_ends = 0
        """The round trip ends with a segment that was sent after this number had arrived."""
        self._starting = True
        self._plateau = 0.0
        self._flat = 0
        """Number of round trips in which the rate did not exceed the plateau by a quarter."""
        self._gain = START_GAIN
        self._phase: int | None = None
        """Phase of the cycle; None before it."""
        self._cycle_ns = 0
        """The begin of the phase, ns."""

    @property
    def rate(self) -> float:
        """The bottleneck's rate, segments/ns; 0 before it is known."""
        return self._best[0][1] if self._best else 0.0

    @property
    def gap_ns(self) -> int:
        """See `Congestion`; the first window leaves at once."""
        rate = self._gain * self.rate
        return round(1 / rate) if rate else 0

    def transmitted(self, segment: int, out: int, now_ns: int) -> None:
        """See `Congestion`."""
        if not out:
            # No segment was under way: the time since the last arrival was idle.
            self._arrived_ns = now_ns
        self._sent_when[segment] = self._arrived, self._arrived_ns

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
        """See `Congestion`."""
        more = delivered - self._arrived
        if more <= 0:
            return
        self._arrived, self._arrived_ns = delivered, now_ns
        if (sent := self._sent_when.get(newest)) is not None:
            self._sample(*sent, now_ns, least_rtt_ns)
        for segment in range(self._kept_from, una):
            self._sent_when.pop(segment, None)
        self._kept_from = una
        fits = self.rate * least_rtt_ns
        self._advance(in_flight, fits, now_ns, least_rtt_ns)
        gain = _WINDOW_GAIN if self._phase is not None else START_GAIN
        target = max(int(gain * fits), _LEAST_WINDOW)
        if self._starting:
            self.window += more if self.window < target else 0
        else:
            self.window = min(self.window + more, target)

    def _sample(self, arrived: int, since_ns: int, now_ns: int, least_rtt_ns: int) -> None:
        """Add the rate of the segments that arrived after the given number and time."""
        if arrived >= self._round_ends:
            self._round += 1
            self._round_ends = self._arrived
            self._end_round()
        if now_ns - since_ns < least_rtt_ns:
            return
        rate = (self._arrived - arrived) / (now_ns - since_ns)
        best = self._best
        while best and best[-1][1] <= rate:
            best.pop()
        best.append((self._round, rate))
        while best[0][0] <= self._round - _ROUNDS:
            best.popleft()

    def _end_round(self) -> None:
        """Check whether the start has found the bottleneck."""
        if not self._starting:
            return
        if self.rate >= self._plateau * _GROWTH:
            self._plateau, self._flat = self.rate, 0
            return
        self._flat += 1
        if self._flat >= _FLAT_ROUNDS:
            self._starting = False
            self._gain = 1 / START_GAIN

    def _advance(self, in_flight: int, fits: float, now_ns: int, least_rtt_ns: int) -> None:
        """Go on to the next phase of the cycle, or to its first after the start."""
        if self._starting:
            return
        if self._phase is None:
            if in_flight > fits:
                return
            self._phase = 1
        elif now_ns - self._cycle_ns < least_rtt_ns:
            return
        self._phase = (self._phase + 1) % len(CYCLE)
        self._gain = CYCLE[self._phase]
        self._cycle_ns = now_ns

    # Losses have no effect.

    def grow(self, delivered: int, out: int, limited: bool, now_ns: int, least_rtt_ns: int) -> None:
        """See `observe`."""

    def begin_reduction(self) -> None:
        """BBR has no threshold."""

    def reduce(self, delivered: int, in_flight: int, lost: int, advanced: bool) -> None:
        """See `begin_reduction`."""

    def end_reduction(self) -> None:
        """See `begin_reduction`."""

    def time_out(self, in_flight: int, again: bool) -> None:
        """See `begin_reduction`."""

    def undo(self) -> bool:
        """Return True, as there is no reduction to undo."""
        return True
