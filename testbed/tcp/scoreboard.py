"""A sender's record of each segment under way: sending time, acknowledgements, losses.

The counts are Linux's. The number of segments in flight is

    out - sacked - lost + resent

where a lost segment that was sent again counts in `lost` and in `resent`, so it counts once.

Losses are found by time (RACK, RFC 8985, section 6.2; Linux's only way since 6.17): a segment is
lost when one sent later has been acknowledged. Within the reordering window it may just be late.
This includes segments that were sent again. The window is 0 once three segments have been
selectively acknowledged, or in recovery; before, a quarter of the least round-trip time.
"""

from __future__ import annotations

import heapq

DUPLICATES = 3
"""Number of selectively acknowledged segments that closes the reordering window."""


class Segment:
    """A segment that was sent and is not yet acknowledged by number."""

    __slots__ = ("ever_resent", "lost", "number", "resent", "sacked", "sent_ns")

    def __init__(self, number: int, now_ns: int) -> None:
        self.number = number
        self.sent_ns = now_ns
        """The time at which the segment was last sent, ns."""
        self.sacked = False
        self.lost = False
        self.resent = False
        """Whether it was sent again since it was last found lost."""
        self.ever_resent = False


class Scoreboard:
    """The segments from the first not acknowledged to the last that was sent."""

    __slots__ = (
        "_by_time",
        "_delivered_ns",
        "_delivered_number",
        "_delivered_rtt_ns",
        "_holes",
        "advanced",
        "delivered",
        "least_rtt_ns",
        "lost",
        "lost_ever",
        "next_",
        "resent",
        "sacked",
        "segments",
        "una",
    )

    def __init__(self) -> None:
        self.una = 0
        """The first segment that is not acknowledged."""
        self.next_ = 0
        """The segment to be sent next."""
        self.segments: dict[int, Segment] = {}
        self.sacked = self.lost = self.resent = 0
        self.delivered = 0
        """Number of segments acknowledged, either way."""
        self.lost_ever = 0
        """Number of times that a segment was found lost."""
        self.advanced = False
        """Whether a newer segment than all before was acknowledged since `detect`."""
        self.least_rtt_ns = 0
        """The least round trip ever seen, ns."""
        self._by_time: dict[int, Segment] = {}
        """Segments that may be found lost, in the order of their last sending."""
        self._holes: list[int] = []
        """A heap of lost segments; some may have come or been sent again meanwhile."""
        self._delivered_ns = -1
        """Sending time of the last-sent acknowledged segment; then its number and round trip."""
        self._delivered_number = -1
        self._delivered_rtt_ns = 0

    @property
    def out(self) -> int:
        """Number of segments sent and not acknowledged by number."""
        return self.next_ - self.una

    @property
    def in_flight(self) -> int:
        """Estimated number of segments in the network."""
        return self.next_ - self.una - self.sacked - self.lost + self.resent

    @property
    def newest(self) -> int:
        """The last-sent segment of all that arrived; -1: none has."""
        return self._delivered_number

    def send_new(self, now_ns: int) -> int:
        """Record that the next segment is sent; return its number."""
        number = self.next_
        self.segments[number] = self._by_time[number] = Segment(number, now_ns)
        self.next_ = number + 1
        return number

    def send_again(self, segment: Segment, now_ns: int) -> None:
        """Record that a segment is sent again."""
        if not segment.resent:
            segment.resent = True
            self.resent += 1
        segment.ever_resent = True
        segment.sent_ns = now_ns
        self._by_time.pop(segment.number, None)
        self._by_time[segment.number] = segment

    def hole(self) -> Segment | None:
        """The first lost segment that was not sent again."""
        holes = self._holes
        while holes:
            segment = self.segments.get(holes[0])
            if segment is not None and segment.lost and not segment.resent:
                return segment
            heapq.heappop(holes)
        return None

    def sack(self, segment: Segment, now_ns: int) -> None:
        """Record that a segment was acknowledged selectively."""
        self._clear(segment)
        segment.sacked = True
        self.sacked += 1
        self._deliver(segment, now_ns)

    def acknowledge_first(self, now_ns: int) -> Segment:
        """The first segment was acknowledged by number; it leaves the board as it was."""
        segment = self.segments.pop(self.una)
        self.una += 1
        if segment.sacked:
            self.sacked -= 1
        else:
            self._clear(segment)
            self._deliver(segment, now_ns)
        return segment

    def mark_lost(self, segment: Segment) -> None:
        """Mark a segment as lost, or lost again."""
        if segment.lost:
            if not segment.resent:
                return
        else:
            segment.lost = True
            self.lost += 1
        if segment.resent:
            segment.resent = False
            self.resent -= 1
        self.lost_ever += 1
        self._by_time.pop(segment.number, None)
        heapq.heappush(self._holes, segment.number)

    def forgive(self) -> None:
        """Unmark all losses: there was none."""
        for segment in self.segments.values():
            if segment.lost:
                segment.lost = False
                self._by_time.setdefault(segment.number, segment)
        self.lost = 0

    def detect(self, now_ns: int, window_ns: int) -> tuple[bool, int | None]:
        """Mark segments as lost that later ones have overtaken.

        Returns:
            Whether a segment that was sent again was lost again, and the time until the next check
            of segments that may just be late; None if there are none.
        """
        self.advanced = False
        again = False
        wait_ns = None
        lost = []
        for segment in self._by_time.values():
            sent = (segment.sent_ns, segment.number)
            if sent >= (self._delivered_ns, self._delivered_number):
                break
            left_ns = segment.sent_ns + self._delivered_rtt_ns + window_ns - now_ns
            if left_ns <= 0:
                lost.append(segment)
            else:
                wait_ns = max(wait_ns or 0, left_ns)
        for segment in lost:
            again |= segment.resent
            self.mark_lost(segment)
        return again, wait_ns

    def overdue(self, segment: Segment, now_ns: int, rtt_ns: int) -> bool:
        """Whether a segment was sent longer ago than the last round trip."""
        return segment.sent_ns + (self._delivered_rtt_ns or rtt_ns) <= now_ns

    def _clear(self, segment: Segment) -> None:
        if segment.resent:
            segment.resent = False
            self.resent -= 1
        if segment.lost:
            segment.lost = False
            self.lost -= 1

    def _deliver(self, segment: Segment, now_ns: int) -> None:
        self.delivered += 1
        self._by_time.pop(segment.number, None)
        rtt_ns = now_ns - segment.sent_ns
        # So early an acknowledgement of a segment that was sent again is of the first copy.
        if segment.ever_resent and rtt_ns < self.least_rtt_ns:
            return
        self.advanced = True
        self._delivered_rtt_ns = rtt_ns
        if (segment.sent_ns, segment.number) > (self._delivered_ns, self._delivered_number):
            self._delivered_ns = segment.sent_ns
            self._delivered_number = segment.number
