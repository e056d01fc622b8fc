"""The arrival times of one connection's bytes: SRTM's table (Seq_s, Seq_e, T).

SRTM 2021, section V-B: each TCP segment has the time at which it came in, and a message arrived
when the segment with its last byte did. A segment may hold many messages, and a message may take
many segments.

Definition. A byte's time is that of the first segment that brought it. A message's arrival is the
latest time of the connection's bytes up to the message's last one: TCP could not deliver it
earlier. So a repeated segment moves no time, and a segment that fills a hole moves the times of all
bytes behind the hole. A byte without a known time counts at the time at which its message was read.

No message is charged more than `LATEST_NS` before it is read, and none after it
(`drld.police.arrival_time` gives the reasons).

Offsets count the bytes of the client's stream from 0. Sequence numbers count them modulo 2^32 and
begin anywhere; the segment's place is the one that is nearest to the first byte not yet asked for.

Bound. A connection keeps `MOST` segments that have not been asked for. Segments beyond that are
added to the last one, whose time becomes theirs; so times become later, never earlier. A segment
that TCP refused (out of its window, or without memory for it) counts as arrived.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from drld.police.arrival_time import LATEST_NS

MOST = 4096
"""Segments of one connection that are kept, about 160 bytes of memory each."""

WINDOW = 1 << 30
"""Bytes: the largest window of TCP (RFC 7323, section 2.3). What is further ahead is no data."""

_MASK, _HALF = (1 << 32) - 1, 1 << 31


class Tally:
    """Counts of messages, of all connections that share it."""

    __slots__ = ("stamped", "unstamped")

    def __init__(self) -> None:
        self.stamped = 0
        """Messages all of whose bytes had a time."""
        self.unstamped = 0
        """Messages with a byte that counted at the time of reading."""


class _Segment(NamedTuple):
    start: int
    """Offset of the first byte."""
    stop: int
    """Offset behind the last byte."""
    time_ns: int


class Segments:
    """The times of one connection's bytes that have not been asked for."""

    __slots__ = ("_end", "_first", "_latest_ns", "_offset", "_refresh", "_segments", "_tally")

    def __init__(
        self,
        first: int | None,
        tally: Tally,
        refresh: Callable[[], object] = lambda: None,
    ) -> None:
        """Begin at offset 0.

        Args:
            first: sequence number of the first byte; None: not known, so no byte gets a time.
            tally: where messages are counted.
            refresh: is called when the time of a byte is not known, and may `add` it.
        """
        self._first = first
        self._tally = tally
        self._refresh = refresh
        self._segments: deque[_Segment] = deque()
        """By offset, without overlap; all end behind `_offset`."""
        self._offset = 0
        """Of the first byte that has not been asked for."""
        self._end = 0
        """Offset behind the bytes that were appended."""
        self._latest_ns = 0
        """The running maximum of the times of the bytes before `_offset`."""

    def __len__(self) -> int:
        """The number of segments that are kept."""
        return len(self._segments)

    def add(self, sequence: int, length: int, time_ns: int) -> None:
        """A segment came in.

        Args:
            sequence: sequence number of its first byte, modulo 2^32.
            length: bytes of payload.
            time_ns: when it came in.
        """
        if self._first is None:
            return
        ahead = ((sequence - self._first - self._offset + _HALF) & _MASK) - _HALF
        if ahead > WINDOW:
            return
        self._keep(self._offset + max(ahead, 0), self._offset + ahead + length, time_ns)

    def append(self, length: int, time_ns: int | None) -> None:
        """The next bytes of the stream have been read, for a source that does not `add` segments.

        Args:
            length: their number.
            time_ns: when they came in; None: not known.
        """
        start = self._end
        self._end += length
        if time_ns is not None:
            self._keep(start, self._end, time_ns)

    def arrival(self, end: int, read_ns: int) -> int:
        """The arrival time of the message whose last byte is before the offset `end`.

        Offsets never decrease from one call to the next.

        Args:
            end: offset behind the message.
            read_ns: when the turn began that reads it.
        """
        tally = self._tally
        if self._pass(end, read_ns):
            tally.stamped += 1
        else:
            tally.unstamped += 1
        latest_ns = self._latest_ns
        if latest_ns > read_ns:
            return read_ns
        return latest_ns if latest_ns > read_ns - LATEST_NS else read_ns - LATEST_NS

    def forget(self, end: int) -> None:
        """No message ends before the offset `end` that has not been asked for."""
        self._pass(end, None)

    def _pass(self, end: int, read_ns: int | None) -> bool:
        """Take the times of the bytes before `end` into the running maximum; those without a time
        at `read_ns` if there is one.

        Returns whether all had a time.
        """
        segments = self._segments
        asked, complete = read_ns is None, True
        while self._offset < end:
            if segments and segments[0].start <= self._offset:
                _, stop, time_ns = segments[0]
                self._latest_ns = max(self._latest_ns, time_ns)
                if stop > end:
                    self._offset = end
                else:
                    self._offset = stop
                    segments.popleft()
            elif asked:
                complete = False
                if read_ns is not None and read_ns > self._latest_ns:
                    self._latest_ns = read_ns
                self._offset = min(segments[0].start, end) if segments else end
            else:
                asked = True
                self._refresh()
        return complete

    def _keep(self, start: int, stop: int, time_ns: int) -> None:
        segments = self._segments
        if stop <= start:
            return
        if segments and (start < segments[-1].stop or len(segments) >= MOST):
            self._add_to_others(start, stop, time_ns)
        else:
            segments.append(_Segment(start, stop, time_ns))

    def _add_to_others(self, start: int, stop: int, time_ns: int) -> None:
        """Keep the bytes that have no time yet, and of these what the bound permits."""
        segments = self._segments
        place = bisect_right(segments, start, key=_start)
        if place:
            start = max(start, segments[place - 1].stop)
        while start < stop:
            last = place == len(segments)
            upto = stop if last else min(stop, segments[place].start)
            if start < upto:
                if len(segments) < MOST:
                    segments.insert(place, _Segment(start, upto, time_ns))
                    place += 1
                elif last and start == segments[-1].stop:
                    before = segments[-1]
                    segments[-1] = _Segment(before.start, upto, max(before.time_ns, time_ns))
            if last:
                return
            start = max(start, segments[place].stop)
            place += 1


def _start(segment: _Segment) -> int:
    return segment.start
