"""The arrival times of a stream, byte by byte: what `drld.messages.segments` computes in pieces."""

from __future__ import annotations

from drld.police.arrival_time import LATEST_NS


class Oracle:
    """The time of each byte that has not been asked for, by its offset."""

    def __init__(self) -> None:
        self.asked = 0
        self._times: dict[int, int] = {}
        self._latest_ns = 0

    def add(self, start: int, length: int, time_ns: int) -> None:
        for offset in range(max(start, self.asked), start + length):
            self._times.setdefault(offset, time_ns)

    def arrival(self, end: int, read_ns: int) -> int:
        for offset in range(self.asked, end):
            self._latest_ns = max(self._latest_ns, self._times.pop(offset, read_ns))
        self.asked = max(self.asked, end)
        return max(self._latest_ns, read_ns - LATEST_NS)
