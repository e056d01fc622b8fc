"""The sending end of a TCP connection: New Reno with selective acknowledgements, as Linux does it.

Segments are numbered and all of one size. What is modelled, and where it stands:

- initial window of 10 segments (RFC 6928), slow start and congestion avoidance (RFC 5681, counting
  the segments that were delivered, as `tcp_reno_cong_avoid` does)
- loss told by time (RACK, RFC 8985; `testbed.sim.scoreboard`), with its timer
- recovery: the window halves, and proportional rate reduction (RFC 6937 with the reduction bound
  that Linux has) says how much is sent for what is delivered
- tail loss probes (RFC 8985, section 7): a new segment, beyond the window if it must be, after two
  round trips of silence; the last one again where there is no new one
- the retransmission timeout (RFC 6298), from 200 ms on, doubling; forward RTO recovery (RFC 5682),
  with the window restored where the timeout turns out to have been premature

The names of the states and of what is computed are those of net/ipv4/tcp_input.c, `tcp_recovery.c`,
`tcp_timer.c` and `tcp_output.c` of Linux 6.18, so that one can be read beside the other.

What is left out: pacing and super-packets (off in the testbed), and undoing a reduction because of
duplicate SACKs or timestamps.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from testbed.sim.clock import Clock
from testbed.sim.receiver import Ack
from testbed.sim.rtt import MIN_RTO_NS, RoundTrip
from testbed.sim.scoreboard import DUPLICATES, Scoreboard, Segment
from testbed.sim.timer import JIFFY_NS, Timer

INITIAL_WINDOW = 10
LEAST_WINDOW = 2
UNKNOWN = 1 << 30
"""Of a threshold that was never set."""
LEAST_TIMEOUT_NS = 2 * JIFFY_NS
"""Linux adds this to timeouts much shorter than the retransmission's."""


class State(enum.Enum):
    """Linux's states of congestion control."""

    OPEN = "open"
    DISORDER = "disorder"
    """Something was acknowledged out of order."""
    RECOVERY = "recovery"
    LOSS = "loss"
    """After a retransmission timeout."""


class _Pending(enum.Enum):
    """What the one timer that a connection has stands for."""

    TIMEOUT = enum.auto()
    PROBE = enum.auto()
    REORDERING = enum.auto()


class _After(enum.Enum):
    """What to send after an acknowledgement."""

    NOTHING = enum.auto()
    NEW = enum.auto()
    LOST = enum.auto()


class Sender:
    """One connection's sender."""

    def __init__(
        self,
        clock: Clock,
        emit: Callable[[int], None],
        *,
        rtt_ns: int,
        phase_ns: int = 0,
        window: int = INITIAL_WINDOW,
        segments: int | None = None,
        most_out: int | None = None,
    ) -> None:
        """A connection that was just made; `emit` sends the segment of a number.

        Args:
            clock: the time.
            emit: sends the segment of a number.
            rtt_ns: what the handshake measured.
            phase_ns: when jiffies begin.
            window: the initial congestion window.
            segments: how many there are to send; None if without end.
            most_out: the receiver's window, in segments; None if it is never full.
        """
        self._clock = clock
        self._emit = emit
        self._segments = segments
        self._most_out = most_out
        self._limited = True
        """Whether it is the congestion window that keeps it from sending more."""
        self.board = Scoreboard()
        self.rtt = RoundTrip()
        self.rtt.sample(rtt_ns, 0, 0)
        self.board.least_rtt_ns = rtt_ns
        self.state = State.OPEN
        self.window = window
        self.threshold = UNKNOWN
        self.retransmits = 0
        """Segments sent again."""
        self.timeouts = 0
        self._grown = 0
        """Towards one more segment of the window."""
        self._high = 0
        """Where the present episode ends: what was next when it began."""
        self._timer = Timer(clock, self._expire, phase_ns)
        self._pending: _Pending | None = None
        self._prior_window = 0
        self._reduced_delivered = 0
        self._reduced_sent = 0
        self._undo: tuple[int, int] | None = None
        """Window and threshold before the timeout."""
        self._forward = False
        """F-RTO is at work."""
        self._expirations = 0
        """Timeouts in a row."""
        self._patient = False
        """The timer was set to wait for what may be late, by the present acknowledgement."""
        self._probe_end: int | None = None
        self._probe_again = False
        """The probe was a segment sent before."""

    @property
    def finished(self) -> bool:
        """Whether all is sent and acknowledged."""
        return self.board.una == self._segments

    def start(self) -> None:
        """Send the first window."""
        self._send_new()

    def close(self) -> None:
        """Send no more."""
        self._timer.stop()
        self._pending = None
        self._segments = self.board.next_

    # What an acknowledgement does: tcp_ack().

    def acknowledge(self, ack: Ack) -> None:
        """Take in an acknowledgement."""
        board, now_ns = self.board, self._clock.now_ns
        if ack.next_ < board.una or (board.una == board.next_ and not ack.duplicate):
            return
        delivered, lost = board.delivered, board.lost_ever
        advanced = ack.next_ > board.una
        if advanced:
            self._expirations = 0
        sacked, sack_sent_ns, original = self._take_blocks(ack, now_ns)
        original |= self._take_number(ack.next_, sack_sent_ns, now_ns)
        if self._probe_end is not None:
            self._end_probe(ack, advanced, sacked)
        after = _After.NOTHING
        self._patient = False
        dubious = sacked or not advanced or ack.duplicate is not None
        if dubious or self.state is not State.OPEN:
            after = self._alert(advanced, sacked, original)
        if not self._patient and (advanced or self._head_is_older(sack_sent_ns)):
            self._set_timer()
        delivered = board.delivered - delivered
        if self.state is State.RECOVERY:
            self._reduce(delivered, board.lost_ever - lost, advanced)
        elif advanced:
            self._grow(delivered)
        self._send_after(after)

    def _take_blocks(self, ack: Ack, now_ns: int) -> tuple[bool, int | None, bool]:
        """Mark what is selectively acknowledged.

        Returns:
            Whether anything was; when the first such that was sent only once was sent; and whether
            one of those belongs to the present episode.
        """
        board = self.board
        segments = board.segments
        any_new, original = False, False
        sent_ns = None
        for first, end in ack.blocks:
            for number in range(max(first, board.una), end):
                segment = segments[number]
                if segment.sacked:
                    continue
                any_new = True
                if not segment.ever_resent:
                    sent_ns = segment.sent_ns if sent_ns is None else sent_ns
                    original |= number < self._high
                board.sack(segment, now_ns)
        return any_new, sent_ns, original

    def _take_number(self, next_: int, sack_sent_ns: int | None, now_ns: int) -> bool:
        """Take off what is acknowledged by number, and measure the round trip.

        Returns:
            Whether a segment of the present episode came that was sent only once.
        """
        board = self.board
        sent_ns = None
        resent_ns = None
        original = False
        while board.una < next_:
            segment = board.acknowledge_first(now_ns)
            if segment.ever_resent:
                resent_ns = segment.sent_ns if resent_ns is None else resent_ns
            elif not segment.sacked:
                sent_ns = segment.sent_ns if sent_ns is None else sent_ns
                original |= segment.number < self._high
        if resent_ns is not None:
            # Karn: which copy it was only the timestamps tell.
            sent_ns = sack_sent_ns if sack_sent_ns is not None else resent_ns
        elif sent_ns is None:
            sent_ns = sack_sent_ns
        if sent_ns is not None:
            self.rtt.sample(now_ns - sent_ns, board.una, board.next_)
            board.least_rtt_ns = self.rtt.minimum_ns
        return original

    def _head_is_older(self, sack_sent_ns: int | None) -> bool:
        """Whether what was selectively acknowledged was sent before the first segment last was.

        Only then the timer is set anew: else a timeout could be put off for ever in a recovery.
        """
        head = self.board.segments.get(self.board.una)
        return head is not None and sack_sent_ns is not None and sack_sent_ns < head.sent_ns

    # Episodes: tcp_fastretrans_alert().

    def _alert(self, advanced: bool, sacked: bool, original: bool) -> _After:
        board = self.board
        if self.state is State.RECOVERY and board.una >= self._high:
            self.window = self.threshold
            self.state = State.OPEN
        if self.state is State.RECOVERY:
            self._detect()
            return _After.LOST
        if self.state is State.LOSS:
            after, ended = self._process_loss(advanced, sacked, original)
            again = self._detect()
            if not ended and not again:
                return after
        else:
            self._detect()
        if not board.lost:
            self._keep_open()
            return _After.NOTHING
        self._enter_recovery()
        return _After.LOST

    def _keep_open(self) -> None:
        """Open, or in disorder where something is missing: tcp_try_keep_open()."""
        board = self.board
        head = board.segments.get(board.una)
        missing = board.sacked or board.lost or board.resent or (head and head.ever_resent)
        state = State.DISORDER if missing else State.OPEN
        if state is not self.state:
            self.state = state
            self._high = board.next_

    def _detect(self) -> bool:
        """Look for losses, if there is news; whether something sent again was lost again."""
        board = self.board
        if not board.advanced:
            return False
        again, wait_ns = board.detect(self._clock.now_ns, self._reordering_window_ns())
        if wait_ns is not None:
            self._patient = True
            self._set_timer_to(_Pending.REORDERING, wait_ns + LEAST_TIMEOUT_NS)
        return again

    def _reordering_window_ns(self) -> int:
        if self.state in (State.RECOVERY, State.LOSS) or self.board.sacked >= DUPLICATES:
            return 0
        return min(self.rtt.minimum_ns // 4, self.rtt.smoothed_ns)

    def _enter_recovery(self) -> None:
        if self.state is not State.RECOVERY:
            self._begin_reduction()
        self.state = State.RECOVERY

    def _begin_reduction(self) -> None:
        """tcp_init_cwnd_reduction()."""
        self._high = self.board.next_
        self._probe_end = None
        self._grown = 0
        self._prior_window = self.window
        self._reduced_delivered = self._reduced_sent = 0
        self.threshold = max(self.window // 2, LEAST_WINDOW)

    def _process_loss(self, advanced: bool, sacked: bool, original: bool) -> tuple[_After, bool]:
        """After a timeout: F-RTO, else send again what was lost; whether it has ended."""
        board = self.board
        recovered = board.una >= self._high
        if self._forward:
            if original and self._undo is not None:
                board.forgive()
                window, threshold = self._undo
                self.window = max(self.window, window)
                self.threshold = max(self.threshold, threshold)
                self._undo = None
                self.state = State.OPEN
                return _After.NOTHING, True
            if board.next_ > self._high:
                if sacked or not advanced:
                    self._forward = False
            elif advanced and not recovered:
                self._high = board.next_
                if self._more:
                    return _After.NEW, False
                self._forward = False
        if recovered:
            self.state = State.OPEN
            return _After.NOTHING, True
        return _After.LOST, False

    # The window.

    def _grow(self, delivered: int) -> None:
        """Slow start, then congestion avoidance: tcp_reno_cong_avoid()."""
        slow_start = self.window < self.threshold
        if not self._limited and not (slow_start and self.window < 2 * self.board.out):
            return
        if slow_start:
            grown = min(self.window + delivered, self.threshold)
            delivered -= grown - self.window
            self.window = grown
            if not delivered:
                return
        window = self.window
        if self._grown >= window:
            self._grown = 0
            self.window += 1
        self._grown += delivered
        if self._grown >= window:
            more = self._grown // window
            self._grown -= more * window
            self.window += more

    def _reduce(self, delivered: int, lost: int, advanced: bool) -> None:
        """Proportional rate reduction: tcp_cwnd_reduction()."""
        if delivered <= 0 or not self._prior_window:
            return
        in_flight = self.board.in_flight
        room = self.threshold - in_flight
        self._reduced_delivered += delivered
        if room < 0:
            due = -(-self.threshold * self._reduced_delivered // self._prior_window)
            count = due - self._reduced_sent
        else:
            count = max(self._reduced_delivered - self._reduced_sent, delivered)
            if advanced and not lost:
                count += 1
            count = min(room, count)
        # At least one: the first segment sent again.
        count = max(count, 0 if self._reduced_sent else 1)
        self.window = in_flight + count

    # Sending: tcp_xmit_recovery(), tcp_write_xmit().

    @property
    def _more(self) -> bool:
        board = self.board
        return (self._segments is None or board.next_ < self._segments) and (
            self._most_out is None or board.out < self._most_out
        )

    def _send_after(self, after: _After) -> None:
        if after is _After.NEW:
            self._send_new()
            if self.board.next_ > self._high:
                return
            self._forward = False
        if after is not _After.NOTHING:
            self._send_lost()
        self._send_new()

    def _send_new(self) -> None:
        board = self.board
        room = self.window - board.in_flight
        sent = 0
        while sent < room and self._more:
            self._transmit_new()
            sent += 1
        self._limited = sent >= room
        if sent:
            if self.state is State.RECOVERY:
                self._reduced_sent += sent
            self._schedule_probe(advancing=False)

    def _transmit_new(self) -> None:
        board = self.board
        first = board.una == board.next_
        number = board.send_new(self._clock.now_ns)
        if first or self._pending is _Pending.PROBE:
            self._restart_timeout()
        self._emit(number)

    def _send_lost(self) -> None:
        board = self.board
        while board.in_flight < self.window:
            segment = board.hole()
            if segment is None:
                return
            self._transmit_again(segment)
            if self.state is State.RECOVERY:
                self._reduced_sent += 1
            if segment.number == board.una and self._pending is not _Pending.REORDERING:
                self._set_timer_to(_Pending.TIMEOUT, self.rtt.timeout_ns)

    def _transmit_again(self, segment: Segment) -> None:
        self.board.send_again(segment, self._clock.now_ns)
        self.retransmits += 1
        self._emit(segment.number)

    # The timer.

    def _set_timer_to(self, pending: _Pending, delay_ns: int) -> None:
        self._pending = pending
        self._timer.set(delay_ns)

    def _set_timer(self) -> None:
        """tcp_set_xmit_timer()."""
        if not self._schedule_probe(advancing=True):
            self._restart_timeout()

    def _timeout_left_ns(self) -> int:
        """tcp_rto_delta_us(): until the timeout of the first segment."""
        head = self.board.segments[self.board.una]
        return head.sent_ns + self.rtt.timeout_ns - self._clock.now_ns

    def _restart_timeout(self) -> None:
        """tcp_rearm_rto()."""
        if self.board.una == self.board.next_:
            self._timer.stop()
            self._pending = None
            return
        delay_ns = self.rtt.timeout_ns
        if self._pending in (_Pending.PROBE, _Pending.REORDERING):
            delay_ns = max(self._timeout_left_ns(), 1)
        self._set_timer_to(_Pending.TIMEOUT, delay_ns)

    def _schedule_probe(self, advancing: bool) -> bool:
        """tcp_schedule_loss_probe()."""
        board = self.board
        if self.state is not State.OPEN or board.una == board.next_:
            return False
        delay_ns = 2 * self.rtt.smoothed_ns
        # One segment alone may wait for a delayed acknowledgement.
        delay_ns += MIN_RTO_NS if board.out == 1 else LEAST_TIMEOUT_NS
        left_ns = self.rtt.timeout_ns if advancing else self._timeout_left_ns()
        if left_ns > 0:
            delay_ns = min(delay_ns, left_ns)
        self._set_timer_to(_Pending.PROBE, delay_ns)
        return True

    def _expire(self) -> None:
        pending = self._pending
        if pending is _Pending.PROBE:
            self._probe()
        elif pending is _Pending.REORDERING:
            self._give_up_waiting()
        elif pending is _Pending.TIMEOUT:
            self._pending = None
            self._time_out()

    def _probe(self) -> None:
        """tcp_send_loss_probe()."""
        board = self.board
        if self._probe_end is None:
            if self._more:
                self._transmit_new()
                self._probe_again = False
            else:
                self._transmit_again(board.segments[board.next_ - 1])
                self._probe_again = True
            self._probe_end = board.next_
            self._pending = None
        self._restart_timeout()

    def _end_probe(self, ack: Ack, advanced: bool, sacked: bool) -> None:
        """tcp_process_tlp_ack()."""
        end = self._probe_end
        assert end is not None
        if ack.next_ < end:
            return
        if not self._probe_again or ack.duplicate is not None:
            self._probe_end = None
        elif ack.next_ > end:
            # The probe made good a loss that nothing else told of.
            self._begin_reduction()
            self.window = self.threshold
            self._keep_open()
        elif not advanced and not sacked:
            self._probe_end = None

    def _give_up_waiting(self) -> None:
        """tcp_rack_reo_timeout()."""
        board = self.board
        before = board.lost_ever
        board.detect(self._clock.now_ns, self._reordering_window_ns())
        if board.lost_ever > before:
            self._enter_recovery()
            self._reduce(1, board.lost_ever - before, advanced=False)
            self._send_lost()
        if self._pending is not _Pending.TIMEOUT:
            self._restart_timeout()

    def _time_out(self) -> None:
        """tcp_retransmit_timer(), tcp_enter_loss()."""
        board, now_ns = self.board, self._clock.now_ns
        self.timeouts += 1
        self._probe_end = None
        fresh = self.state in (State.OPEN, State.DISORDER)
        head = board.segments[board.una]
        for segment in list(board.segments.values()):
            if segment is head or (
                not segment.sacked and board.overdue(segment, now_ns, self.rtt.smoothed_ns)
            ):
                board.mark_lost(segment)
        if fresh or self._high <= board.una or (self.state is State.LOSS and not self._expirations):
            self._undo = (self.window, self.threshold)
            self.threshold = max(self.window // 2, LEAST_WINDOW)
        self.window = board.in_flight + 1
        self._grown = 0
        self.state = State.LOSS
        self._high = board.next_
        self._forward = fresh or self._expirations > 0
        self._expirations += 1
        self._transmit_again(head)
        self.rtt.backoff += 1
        self._set_timer_to(_Pending.TIMEOUT, self.rtt.timeout_ns)
