"""The receiving end of a TCP connection, as in Linux: contents and times of acknowledgements.

Segments are numbered; their size has no effect here. Acknowledgements are sent (RFC 5681,
2018, 2883, 7323; Linux's net/ipv4/tcp_input.c):

- At once for a segment out of order, for one that fills a gap, and for one that has come before,
  with a duplicate SACK.
- For two or more segments in order when the application reads them, `READ_NS` later: unread bytes
  would narrow the announced window (`__tcp_ack_snd_check`, `tcp_cleanup_rbuf`). So segments that
  come together are acknowledged together.
- At once for each segment in the quick phase: the first 16 of a connection, and 16 after a
  duplicate or a pause longer than the retransmission timeout.
- Else at most 40 ms later; the delay adapts to the arrivals, and never exceeds the larger of 40 ms
  and the round-trip time.
- Up to three SACK blocks, the newest first.
- A congestion mark is echoed at once, and in all acknowledgements from then on until a segment says
  that the window was reduced (RFC 3168, section 6.1.3; `tcp_ecn_check_ce`, `tcp_ecn_accept_cwr`).

Deviations: Linux delays the SACKs of one round trip beyond the third by up to 1 ms, to send fewer.
Here the window never closes, as the testbed's receivers read at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from testbed.tcp.clock import Clock
from testbed.tcp.rtt import MIN_RTO_NS
from testbed.tcp.timer import Timer

QUICK_ACKS = 16
QUICK_ACKS_MARKED = 2
"""Quick acknowledgements after the first echoed mark."""
LEAST_DELAY_NS = 40_000_000
MOST_BLOCKS = 3
READ_NS = 50_000
"""Time in which a waiting application wakes up and reads, as on the testbed."""


class Ack(NamedTuple):
    """An acknowledgement of segments."""

    next_: int
    """The first segment that has not come."""
    blocks: tuple[tuple[int, int], ...] = ()
    """Ranges received beyond `next_` (first, one after the last), the newest first."""
    duplicate: int | None = None
    """The segment that came twice."""
    echo: bool = False
    """Whether to echo a mark that the sender has not confirmed (ECE)."""


class Receiver:
    """Receives segments, and sends acknowledgements."""

    __slots__ = (
        "_acknowledge",
        "_blocks",
        "_clock",
        "_delay_ns",
        "_deliver",
        "_echo",
        "_last_ns",
        "_most_delay_ns",
        "_quick",
        "_reading",
        "_timeout_ns",
        "_timer",
        "_unacknowledged",
        "next_",
    )

    def __init__(
        self,
        clock: Clock,
        acknowledge: Callable[[Ack], None],
        deliver: Callable[[int], None],
        *,
        rtt_ns: int,
        phase_ns: int = 0,
    ) -> None:
        """`deliver` gets the number of new segments in order.

        `rtt_ns`: the handshake's round trip; jiffies begin at `phase_ns`.
        """
        self._clock = clock
        self._acknowledge = acknowledge
        self._deliver = deliver
        self._timeout_ns = rtt_ns + max(2 * rtt_ns, MIN_RTO_NS)
        self._most_delay_ns = max(rtt_ns, LEAST_DELAY_NS)
        self._delay_ns = 0
        """The wait for a second segment (Linux's ATO), ns; 0 until data has come."""
        self._quick = 0
        self._echo = False
        self._last_ns = 0
        """The time at which the last data in order came, ns."""
        self._unacknowledged = 0
        self._reading = False
        """Whether the application will read soon."""
        self._timer = Timer(clock, self._expire, phase_ns)
        self._blocks: list[tuple[int, int]] = []
        """Ranges received out of order, the newest first."""
        self.next_ = 0
        """The expected segment."""

    @property
    def held(self) -> int:
        """Received segments that wait for a missing one before them."""
        return sum(end - first for first, end in self._blocks)

    def receive(self, segment: int, marked: bool = False, reduced: bool = False) -> None:
        """Receive a segment.

        Args:
            segment: its number.
            marked: whether it bears a congestion mark (CE).
            reduced: whether it says that the window was reduced (CWR).
        """
        if marked or reduced:
            self._note_congestion(marked, reduced)
        if segment == self.next_:
            self._in_order()
            return
        if segment < self.next_ or any(low <= segment < high for low, high in self._blocks):
            self._quick = QUICK_ACKS
            self._answer(segment)
            return
        low, high = segment, segment + 1
        others = []
        for block in self._blocks:
            if block[1] == low:
                low = block[0]
            elif block[0] == high:
                high = block[1]
            else:
                others.append(block)
        self._blocks = [(low, high), *others]
        self._answer()

    def close(self) -> None:
        """Send no more acknowledgements."""
        self._timer.stop()

    def _in_order(self) -> None:
        first = self.next_
        self.next_ = first + 1
        had_gap = bool(self._blocks)
        if had_gap:
            for block in self._blocks:
                if block[0] == self.next_:
                    self.next_ = block[1]
                    self._blocks.remove(block)
                    break
        self._deliver(self.next_ - first)
        self._note_arrival()
        self._unacknowledged += 1
        if had_gap or self._quick:
            self._answer()
        elif self._unacknowledged >= 2:
            if not self._reading:
                self._reading = True
                self._clock.at(self._clock.now_ns + READ_NS, self._read)
        elif not self._timer.running:
            self._timer.set(min(self._delay_ns, self._most_delay_ns))

    def _read(self, _: object) -> None:
        self._reading = False
        if self._unacknowledged >= 2:
            self._answer()

    def _note_congestion(self, marked: bool, reduced: bool) -> None:
        if reduced:
            # The sender's window may be this one segment: acknowledge it at once.
            self._echo = False
            self._quick = max(self._quick, 1)
        if marked and not self._echo:
            self._echo = True
            self._quick = max(self._quick, QUICK_ACKS_MARKED)

    def _note_arrival(self) -> None:
        """Adapt the wait for a second segment to the last segments' spacing."""
        now_ns = self._clock.now_ns
        since_ns = now_ns - self._last_ns
        self._last_ns = now_ns
        if not self._delay_ns:
            self._quick = QUICK_ACKS
            self._delay_ns = LEAST_DELAY_NS
        elif since_ns <= LEAST_DELAY_NS // 2:
            self._delay_ns = self._delay_ns // 2 + LEAST_DELAY_NS // 2
        elif since_ns < self._delay_ns:
            self._delay_ns = min(self._delay_ns // 2 + since_ns, self._timeout_ns)
        elif since_ns > self._timeout_ns:
            self._quick = QUICK_ACKS

    def _expire(self) -> None:
        self._delay_ns = min(2 * self._delay_ns, self._timeout_ns)
        self._answer()

    def _answer(self, duplicate: int | None = None) -> None:
        self._unacknowledged = 0
        self._timer.stop()
        if self._quick:
            self._quick -= 1
            if not self._quick:
                self._delay_ns = LEAST_DELAY_NS
        most = MOST_BLOCKS if duplicate is None else MOST_BLOCKS - 1
        self._acknowledge(Ack(self.next_, tuple(self._blocks[:most]), duplicate, self._echo))
