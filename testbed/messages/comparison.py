"""A stream as the socket filter took it down, beside the same stream as a packet capture has it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from drld.police.arrival_time import LATEST_NS
from testbed.messages.tcp_segments import SEQUENCES, Segment, arrivals


class Message(NamedTuple):
    """A message that has been read."""

    end: int
    """Offset behind it."""
    read_ns: int
    arrived_ns: int
    """Arrival of the message by the filter, ns."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A stream that has been received."""

    first: int
    """Sequence number of the first byte."""
    recorded: list[Segment]
    """The segments of the filter, in the order in which the reader learned of them."""
    captured: list[Segment]
    messages: list[Message]
    unstamped: int
    """Messages with a byte that was not recorded."""
    missed: int
    """Segments that met a full ring."""

    def same_segments(self) -> bool:
        """Whether the filter took down what the capture has."""
        both = (
            [(it.sequence, it.length) for it in them] for them in (self.recorded, self.captured)
        )
        return sorted(next(both)) == sorted(next(both))

    def differences(self) -> list[int]:
        """The arrival of each message by the filter, less its arrival by the capture, ns."""
        expected = charged(self.captured, self.first, self.messages)
        return [it.arrived_ns - at for it, at in zip(self.messages, expected, strict=True)]

    def beyond(self, bound_ns: int) -> int:
        """The number of messages whose two arrivals differ by more than a bound."""
        return sum(abs(it) > bound_ns for it in self.differences())

    def repeated(self) -> int:
        """The number of segments all of whose bytes had come before."""
        covered = bytearray(self.messages[-1].end)
        count = 0
        for it in self.captured:
            start = (it.sequence - self.first) % SEQUENCES
            count += covered.count(1, start, start + it.length) == it.length
            covered[start : start + it.length] = b"\1" * it.length
        return count

    def out_of_order(self) -> int:
        """The number of segments with new bytes that came after later bytes."""
        ahead = count = 0
        for it in self.captured:
            end = (it.sequence - self.first) % SEQUENCES + it.length
            count += end < ahead
            ahead = max(ahead, end)
        return count - self.repeated()


def charged(segments: Iterable[Segment], first: int, messages: Sequence[Message]) -> list[int]:
    """The times at which messages are charged if these segments are known, ns.

    It is their arrival, but at most `LATEST_NS` before they are read. A later turn charges one that
    arrives after that (`drld.messages.front.pump`).
    """
    times = arrivals(segments, first, [it.end for it in messages])
    return [max(at_ns, it.read_ns - LATEST_NS) for it, at_ns in zip(messages, times, strict=True)]
