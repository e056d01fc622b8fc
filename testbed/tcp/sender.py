"""The sending end of a TCP connection: New Reno with selective acknowledgements, as in Linux.

Segments are numbered and have one size. The model has:

- initial window of 10 segments (RFC 6928), slow start and congestion avoidance (RFC 5681, counting
  the segments that were delivered, as `tcp_reno_cong_avoid` does)
- detection of losses by time (RACK, RFC 8985; `testbed.tcp.scoreboard`), with its timer
- recovery: the window halves, and proportional rate reduction (RFC 6937 with Linux's reduction
  bound) decides the sending meanwhile
- tail loss probes (RFC 8985, section 7; `testbed.tcp.loss_probe`): after two round trips of silence
  a new segment, even beyond the window, or the last one again if there is no new one
- explicit congestion notification (RFC 3168), as an option: an echoed mark reduces the window like
  a loss, once a round trip, and the next new segment says so; segments sent again are not
  ECN-capable
- the retransmission timeout (RFC 6298), from 200 ms on, doubling; forward RTO recovery (RFC 5682),
  with the window restored after a premature timeout

The names are those of net/ipv4/tcp_input.c, `tcp_recovery.c`, `tcp_timer.c` and `tcp_output.c` of
Linux 6.18, so that both can be read side by side.

The window is in another module: New Reno's (`testbed.tcp.congestion`), or another control's
(`testbed.tcp.controls`). With a pacing control each segment waits for its time
(`testbed.tcp.pacer`).

Deviations: New Reno and CUBIC are not paced, and no reduction is undone because of duplicate SACKs
or timestamps.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from testbed.tcp.clock import Clock
from testbed.tcp.congestion import INITIAL_WINDOW, Congestion
from testbed.tcp.digest import Digest, digest
from testbed.tcp.loss_probe import LossProbe
from testbed.tcp.pacer import Pacer
from testbed.tcp.receiver import Ack
from testbed.tcp.retransmission import Pending, RetransmissionTimer
from testbed.tcp.rtt import RoundTrip
from testbed.tcp.scoreboard import DUPLICATES, Scoreboard, Segment


class State(enum.Enum):
    """Linux's states of congestion control."""

    OPEN = "open"
    DISORDER = "disorder"
    """A segment was acknowledged out of order."""
    CWR = "cwr"
    """The window is being reduced after a congestion mark."""
    RECOVERY = "recovery"
    LOSS = "loss"
    """After a retransmission timeout."""


_REDUCING = (State.CWR, State.RECOVERY)
"""tcp_in_cwnd_reduction()."""


class _After(enum.Enum):
    """The segments to send after an acknowledgement."""

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
        control: Callable[[int], Congestion] = Congestion,
    ) -> None:
        """Begin after the handshake.

        Args:
            clock: the time.
            emit: sends the segment of a number.
            rtt_ns: the handshake's round trip.
            phase_ns: when jiffies begin.
            window: the initial congestion window.
            segments: number of segments to send; None: without end.
            most_out: the receiver's window, in segments; None: it is never full.
            control: makes a congestion control of the initial window.
        """
        self._clock = clock
        self._emit = emit
        self._segments = segments
        self._most_out = most_out
        self._limited = True
        """Whether the congestion window limits the sending."""
        self.board = Scoreboard()
        self.rtt = RoundTrip()
        self.rtt.sample(rtt_ns, 0, 0)
        self.board.least_rtt_ns = rtt_ns
        self.state = State.OPEN
        self.congestion = control(window)
        self._pacer = Pacer(clock, self._resume) if self.congestion.paced else None
        self.retransmits = 0
        """Number of segments sent again."""
        self.timeouts = 0
        self._high = 0
        """End of the present episode: the next segment at its begin."""
        self._timer = RetransmissionTimer(clock, self._expire, phase_ns, self.board, self.rtt)
        self._forward = False
        """Whether F-RTO is active."""
        self._expirations = 0
        """Number of timeouts in a row."""
        self._patient = False
        """Whether the present acknowledgement set the timer to wait for late segments."""
        self._probe = LossProbe()
        self._reduced = False
        """Whether the window was reduced, and no segment has said so yet."""

    @property
    def finished(self) -> bool:
        """Whether all segments are sent and acknowledged."""
        return self.board.una == self._segments

    def start(self) -> None:
        """Send the first window."""
        self._send_new()

    def tells_reduction(self) -> bool:
        """Whether the segment that leaves now says that the window was reduced (CWR)."""
        reduced, self._reduced = self._reduced, False
        return reduced

    def close(self) -> None:
        """Stop the timer, and send no new segment."""
        self._timer.stop()
        self._segments = self.board.next_
        if self._pacer is not None:
            self._pacer.close()

    # Acknowledgements: tcp_ack().

    def acknowledge(self, ack: Ack) -> None:
        """Process an acknowledgement."""
        board, now_ns = self.board, self._clock.now_ns
        if ack.next_ < board.una or (board.una == board.next_ and not ack.duplicate):
            return
        delivered, lost = board.delivered, board.lost_ever
        news = digest(board, ack, self._high, now_ns)
        if news.advanced:
            self._expirations = 0
        if news.sample_sent_ns is not None:
            self.rtt.sample(now_ns - news.sample_sent_ns, board.una, board.next_)
            board.least_rtt_ns = self.rtt.minimum_ns
        if self._probe.repaired(ack, news):
            self._begin_reduction()
            self.congestion.end_reduction()
            self._keep_open()
        after = _After.NOTHING
        self._patient = False
        dubious = news.sacked or not news.advanced or ack.duplicate is not None or ack.echo
        if dubious or self.state is not State.OPEN:
            after = self._alert(news, ack.echo)
        # Acknowledgements of segments sent after the first segment do not set the timer again:
        # otherwise a recovery could postpone a timeout forever.
        if not self._patient and (news.advanced or news.earlier_than_head):
            self._set_timer()
        delivered = board.delivered - delivered
        if self.state in _REDUCING:
            lost = board.lost_ever - lost
            self.congestion.reduce(delivered, board.in_flight, lost, news.advanced)
        elif news.advanced:
            self.congestion.grow(delivered, board.out, self._limited, now_ns, self.rtt.minimum_ns)
        if self._pacer is not None:
            self.congestion.observe(
                board.newest, board.una, board.delivered, board.in_flight, now_ns=now_ns,
                least_rtt_ns=self.rtt.minimum_ns,
            )  # fmt: skip
        self._send_after(after)

    # Episodes: tcp_fastretrans_alert().

    def _alert(self, news: Digest, echo: bool) -> _After:
        board = self.board
        if self.state is State.CWR and board.una > self._high:
            self.congestion.end_reduction()
            self.state = State.OPEN
        if self.state is State.RECOVERY and board.una >= self._high:
            self.congestion.end_reduction()
            self.state = State.OPEN
        if self.state is State.RECOVERY:
            self._detect()
            return _After.LOST
        if self.state is State.LOSS:
            after, ended = self._process_loss(news)
            again = self._detect()
            if not ended and not again:
                return after
        else:
            self._detect()
        if not board.lost:
            if echo and self.state in (State.OPEN, State.DISORDER):
                self._begin_reduction()
                self.state = State.CWR
            if self.state is not State.CWR:
                self._keep_open()
            return _After.NOTHING
        self._enter_recovery()
        return _After.LOST

    def _keep_open(self) -> None:
        """Set the state: open, or disorder if a segment is missing: tcp_try_keep_open()."""
        board = self.board
        head = board.segments.get(board.una)
        missing = board.sacked or board.lost or board.resent or (head and head.ever_resent)
        state = State.DISORDER if missing else State.OPEN
        if state is not self.state:
            self.state = state
            self._high = board.next_

    def _detect(self) -> bool:
        """Find losses after news; return whether a segment sent again was lost again."""
        board = self.board
        if not board.advanced:
            return False
        again, wait_ns = board.detect(self._clock.now_ns, self._reordering_window_ns())
        if wait_ns is not None:
            self._patient = True
            self._timer.await_late(wait_ns)
        return again

    def _reordering_window_ns(self) -> int:
        if self.state in (State.RECOVERY, State.LOSS) or self.board.sacked >= DUPLICATES:
            return 0
        return min(self.rtt.minimum_ns // 4, self.rtt.smoothed_ns)

    def _enter_recovery(self) -> None:
        if self.state not in _REDUCING:
            self._begin_reduction()
        self.state = State.RECOVERY

    def _begin_reduction(self) -> None:
        self._high = self.board.next_
        self._probe.forget()
        self._reduced = True
        self.congestion.begin_reduction()

    def _process_loss(self, news: Digest) -> tuple[_After, bool]:
        """Go on after a timeout: F-RTO, else retransmission; return whether the loss is over."""
        board = self.board
        recovered = board.una >= self._high
        if self._forward:
            if news.original and self.congestion.undo():
                board.forgive()
                self.state = State.OPEN
                return _After.NOTHING, True
            if board.next_ > self._high:
                if news.sacked or not news.advanced:
                    self._forward = False
            elif news.advanced and not recovered:
                self._high = board.next_
                if self._more:
                    return _After.NEW, False
                self._forward = False
        if recovered:
            self.state = State.OPEN
            return _After.NOTHING, True
        return _After.LOST, False

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
        room = self.congestion.window - board.in_flight
        sent = 0
        pacer = self._pacer
        while sent < room and self._more and (pacer is None or not pacer.must_wait()):
            self._transmit_new()
            sent += 1
        self._limited = sent >= room
        if sent:
            if self.state in _REDUCING:
                self.congestion.sent(sent)
            if self.state in (State.OPEN, State.CWR):
                self._timer.await_probe(advancing=False)

    def _transmit_new(self) -> None:
        board = self.board
        first = board.una == board.next_
        if self._pacer is not None:
            self._pace(self._pacer, board.next_)
        number = board.send_new(self._clock.now_ns)
        if first or self._timer.pending is Pending.PROBE:
            self._timer.restart()
        self._emit(number)

    def _pace(self, pacer: Pacer, segment: int) -> None:
        self.congestion.transmitted(segment, self.board.out, self._clock.now_ns)
        pacer.sent(self.congestion.gap_ns)

    def _resume(self) -> None:
        """The time of the next segment has come."""
        if self.state is State.RECOVERY or (self.state is State.LOSS and not self._forward):
            self._send_lost()
        self._send_new()

    def _send_lost(self) -> None:
        board, pacer = self.board, self._pacer
        while board.in_flight < self.congestion.window:
            segment = board.hole()
            if segment is None or (pacer is not None and pacer.must_wait()):
                return
            self._transmit_again(segment)
            if self.state in _REDUCING:
                self.congestion.sent(1)
            if segment.number == board.una and self._timer.pending is not Pending.REORDERING:
                self._timer.await_timeout()

    def _transmit_again(self, segment: Segment) -> None:
        if self._pacer is not None:
            self._pace(self._pacer, segment.number)
        self.board.send_again(segment, self._clock.now_ns)
        self.retransmits += 1
        self._emit(segment.number)

    # The timer.

    def _set_timer(self) -> None:
        """tcp_set_xmit_timer()."""
        if self.state in (State.OPEN, State.CWR) and self.board.una < self.board.next_:
            self._timer.await_probe(advancing=True)
        else:
            self._timer.restart()

    def _expire(self) -> None:
        pending = self._timer.pending
        if pending is Pending.PROBE:
            self._send_probe()
        elif pending is Pending.REORDERING:
            self._give_up_waiting()
        elif pending is Pending.TIMEOUT:
            self._time_out()

    def _send_probe(self) -> None:
        """Send a new segment, or the last one again (tcp_send_loss_probe())."""
        board = self.board
        if not self._probe.pending:
            again = not self._more
            if again:
                self._transmit_again(board.segments[board.next_ - 1])
            else:
                self._transmit_new()
            self._probe.sent(board.next_, again=again)
            self._timer.stop()
        self._timer.restart()

    def _give_up_waiting(self) -> None:
        """tcp_rack_reo_timeout()."""
        board = self.board
        before = board.lost_ever
        board.detect(self._clock.now_ns, self._reordering_window_ns())
        if board.lost_ever > before:
            self._enter_recovery()
            self.congestion.reduce(1, board.in_flight, board.lost_ever - before, advanced=False)
            self._send_lost()
        if self._timer.pending is not Pending.TIMEOUT:
            self._timer.restart()

    def _time_out(self) -> None:
        """tcp_retransmit_timer(), tcp_enter_loss()."""
        board, now_ns = self.board, self._clock.now_ns
        self.timeouts += 1
        self._probe.forget()
        fresh = self.state in (State.OPEN, State.DISORDER, State.CWR)
        head = board.segments[board.una]
        for segment in list(board.segments.values()):
            if segment is head or (
                not segment.sacked and board.overdue(segment, now_ns, self.rtt.smoothed_ns)
            ):
                board.mark_lost(segment)
        again = (
            self.state not in (State.OPEN, State.DISORDER)
            and self._high > board.una
            and (self.state is not State.LOSS or self._expirations > 0)
        )
        self.congestion.time_out(board.in_flight, again)
        self._reduced = True
        self.state = State.LOSS
        self._high = board.next_
        self._forward = fresh or self._expirations > 0
        self._expirations += 1
        self._transmit_again(head)
        self.rtt.backoff += 1
        self._timer.await_timeout()
