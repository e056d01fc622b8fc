"""The arrival times of one connection's bytes: SRTM's table (Seq_s, Seq_e, T).

SRTM 2021, section V-B: each TCP segment has the time at which it came in, and a message arrived
when the segment with its last byte did. A segment may hold many messages, and a message may take
many segments.

Definition. A byte's time is that of the first segment that brought it. A message's arrival is the
latest time of the connection's bytes up to the message's last one: TCP could not deliver it
earlier. So a repeated segment changes no time, and a segment that fills a hole changes the times of
all bytes behind the hole. A byte without a known time gets the time at which its message was read.

No message is charged more than `LATEST_NS` before the turn that reads it
(`drld.police.arrival_time` gives the reasons). A message that arrived after that turn began belongs
to the next turn (`drld.messages.front.pump`).

Offsets count the bytes of the client's stream from 0. Sequence numbers count them modulo 2^32 and
begin anywhere. A segment has the place that is nearest to the first byte whose time has not been
asked for.

Bound. A connection keeps at most `MOST` segments whose times have not been asked for, and no more
than are free of the `ROOM` of all connections: a dynamic threshold, like that of the bytes
(`drld.messages.front.memory`). It keeps one in any case. Segments beyond that are added to the last
one, which gets their time. So times become later, never earlier. A segment that TCP refused (out of
its window, or without memory for it) counts as arrived.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from drld.mypyc import mypyc_attr
from drld.police.arrival_time import LATEST_NS

MOST = 4096
"""The most segments that one connection keeps, about 160 bytes of memory each."""
ROOM = 1 << 17
"""The segments of all connections together, 21 MB: as many as a ring of `SocketStamps` takes."""

WINDOW = 1 << 30
"""The largest window of TCP, bytes (RFC 7323, section 2.3). A segment further ahead has no data."""

_MASK, _HALF = (1 << 32) - 1, 1 << 31


class Tally:
    """The counts of messages and of segments of all connections that share it."""

    __slots__ = ("free", "stamped", "unstamped")

    def __init__(self, room: int = ROOM) -> None:
        self.free = room
        """The segments that there is room for; below 0 if many connections keep the one that each
        may keep in any case."""
        self.stamped = 0
        """Messages whose bytes all had a known time."""
        self.unstamped = 0
        """Messages with a byte that got the time of reading."""


class _Segment(NamedTuple):
    start: int
    """Offset of the first byte."""
    stop: int
    """Offset behind the last byte."""
    time_ns: int


@mypyc_attr(allow_interpreted_subclasses=True)
class Segments:
    """The times of one connection's bytes, until they are asked for."""

    __slots__ = (
        "_end",
        "_first",
        "_latest_ns",
        "_offset",
        "_refresh",
        "_segments",
        "_tally",
        "_timed",
    )

    def __init__(
        self,
        first: int | None,
        tally: Tally,
        refresh: Callable[[], object] = lambda: None,
    ) -> None:
        """Begin at offset 0.

        Args:
            first: the sequence number of the first byte; None: it is not known, and no byte has a
                time.
            tally: counts the messages.
            refresh: is called when the time of a byte is not known, and may `add` it.
        """
        self._first = first
        self._tally = tally
        self._refresh = refresh
        self._segments: deque[_Segment] = deque()
        """The segments by offset, without overlap; all end behind `_offset`."""
        self._offset = 0
        """The offset of the first byte whose time has not been asked for."""
        self._end = 0
        """The offset behind the bytes that were appended."""
        self._latest_ns = 0
        """The running maximum of the times of the bytes before `_offset`."""
        self._timed = True
        """Whether all bytes of the last message had a time."""

    def __len__(self) -> int:
        """The number of segments that are kept."""
        return len(self._segments)

    def forget(self) -> None:
        """Forget all segments: no time will be asked for."""
        self._tally.free += len(self._segments)
        self._segments.clear()
        self._first = None

    def add(self, sequence: int, length: int, time_ns: int) -> None:
        """Take in a segment that has arrived.

        Args:
            sequence: the sequence number of its first byte, modulo 2^32.
            length: the bytes of its payload.
            time_ns: the time of its arrival.
        """
        if self._first is None:
            return
        ahead = ((sequence - self._first - self._offset + _HALF) & _MASK) - _HALF
        if ahead > WINDOW:
            return
        self._keep(self._offset + max(ahead, 0), self._offset + ahead + length, time_ns)

    def append(self, length: int, time_ns: int | None) -> None:
        """Take in the next bytes of the stream, for a source that does not `add` segments.

        Args:
            length: the number of bytes.
            time_ns: the time of their arrival; None: it is not known.
        """
        start = self._end
        self._end += length
        if time_ns is not None:
            self._keep(start, self._end, time_ns)

    def arrival(self, end: int, read_ns: int) -> int:
        """The arrival time of the message whose last byte is before the offset `end`.

        Offsets never decrease from one call to the next. Messages that end together, in a record of
        TLS, count alike. A message that arrived after `read_ns` does not count yet: the next turn
        asks again.

        Args:
            end: the offset behind the message.
            read_ns: the beginning of the turn that reads the message.
        """
        if end > self._offset:
            self._timed = self._pass(end, read_ns)
        latest_ns = self._latest_ns
        if latest_ns > read_ns:
            return latest_ns
        if self._timed:
            self._tally.stamped += 1
        else:
            self._tally.unstamped += 1
        return latest_ns if latest_ns > read_ns - LATEST_NS else read_ns - LATEST_NS

    def _pass(self, end: int, read_ns: int) -> bool:
        """Take the times of the bytes before `end` into the running maximum.

        Bytes without a time get `read_ns`. Returns whether all bytes had a time.
        """
        segments = self._segments
        asked, complete = False, True
        while self._offset < end:
            if segments and segments[0].start <= self._offset:
                _, stop, time_ns = segments[0]
                self._latest_ns = max(self._latest_ns, time_ns)
                if stop > end:
                    self._offset = end
                else:
                    self._offset = stop
                    segments.popleft()
                    self._tally.free += 1
            elif asked:
                complete = False
                self._latest_ns = max(self._latest_ns, read_ns)
                self._offset = min(segments[0].start, end) if segments else end
            else:
                asked = True
                self._refresh()
        return complete

    def _keep(self, start: int, stop: int, time_ns: int) -> None:
        segments = self._segments
        if stop <= start:
            return
        if segments and (start < segments[-1].stop or self._full):
            self._add_to_others(start, stop, time_ns)
        else:
            segments.append(_Segment(start, stop, time_ns))
            self._tally.free -= 1

    @property
    def _full(self) -> bool:
        """Whether the connection keeps as many segments as it may."""
        count = len(self._segments)
        return count >= MOST or count > self._tally.free

    def _add_to_others(self, start: int, stop: int, time_ns: int) -> None:
        """Keep the bytes of a segment that have no time yet, as far as the bound permits."""
        segments = self._segments
        place = bisect_right(segments, start, key=_start)
        if place:
            start = max(start, segments[place - 1].stop)
        while start < stop:
            last = place == len(segments)
            upto = stop if last else min(stop, segments[place].start)
            if start < upto:
                if not self._full:
                    segments.insert(place, _Segment(start, upto, time_ns))
                    self._tally.free -= 1
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
