"""The only timer of a sender: its purpose, and the times at which it is set.

It waits for the retransmission timeout, for a tail loss probe, or for segments that may only be
late (RACK). The names of the functions are those of Linux's net/ipv4/tcp_input.c and tcp_output.c.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from testbed.tcp.clock import Clock
from testbed.tcp.rtt import MIN_RTO_NS, RoundTrip
from testbed.tcp.scoreboard import Scoreboard
from testbed.tcp.timer import Timer

LEAST_TIMEOUT_NS = 2_000_000
"""Linux adds this to timeouts much shorter than the retransmission's: TCP_TIMEOUT_MIN_US."""


class Pending(enum.Enum):
    """The purpose of the timer."""

    TIMEOUT = enum.auto()
    PROBE = enum.auto()
    REORDERING = enum.auto()


class RetransmissionTimer:
    """A timer set from round trips and segments under way."""

    __slots__ = ("_board", "_clock", "_rtt", "_timer", "pending")

    def __init__(
        self,
        clock: Clock,
        fire: Callable[[], None],
        phase_ns: int,
        board: Scoreboard,
        rtt: RoundTrip,
    ) -> None:
        """Jiffies begin at `phase_ns`."""
        self.pending: Pending | None = None
        """The timer's purpose; after it has fired, its last purpose."""
        self._clock = clock
        self._board = board
        self._rtt = rtt
        self._timer = Timer(clock, fire, phase_ns)

    def stop(self) -> None:
        """Stop the timer."""
        self._timer.stop()
        self.pending = None

    def await_timeout(self) -> None:
        """Set the timer to a whole timeout from now on."""
        self._set(Pending.TIMEOUT, self._rtt.timeout_ns)

    def await_late(self, wait_ns: int) -> None:
        """Set the timer to the time at which segments that are only late must have come."""
        self._set(Pending.REORDERING, wait_ns + LEAST_TIMEOUT_NS)

    def restart(self) -> None:
        """tcp_rearm_rto(): the timeout of the first segment; none if no segment is under way."""
        if self._board.una == self._board.next_:
            self.stop()
        elif self.pending in (Pending.PROBE, Pending.REORDERING):
            self._set(Pending.TIMEOUT, max(self._left_ns(), 1))
        else:
            self.await_timeout()

    def await_probe(self, advancing: bool) -> None:
        """tcp_schedule_loss_probe(): two round trips, or the timeout if it is sooner.

        `advancing`: whether the timeout would start again.
        """
        delay_ns = 2 * self._rtt.smoothed_ns
        # One segment alone may wait for a delayed acknowledgement.
        delay_ns += MIN_RTO_NS if self._board.out == 1 else LEAST_TIMEOUT_NS
        left_ns = self._rtt.timeout_ns if advancing else self._left_ns()
        if left_ns > 0:
            delay_ns = min(delay_ns, left_ns)
        self._set(Pending.PROBE, delay_ns)

    def _left_ns(self) -> int:
        """tcp_rto_delta_us(): the time until the timeout of the first segment, ns."""
        head = self._board.segments[self._board.una]
        return head.sent_ns + self._rtt.timeout_ns - self._clock.now_ns

    def _set(self, pending: Pending, delay_ns: int) -> None:
        self.pending = pending
        self._timer.set(delay_ns)
