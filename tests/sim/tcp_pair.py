"""A TCP sender and a receiver with a path between them that loses what a test says."""

from __future__ import annotations

from collections.abc import Callable

from testbed.tcp.clock import Clock
from testbed.tcp.controls import CONTROLS
from testbed.tcp.receiver import Ack, Receiver
from testbed.tcp.sender import Sender

MS = 1_000_000
RTT_NS = 40 * MS
SPACING_NS = 10_000


class Pair:
    """Segments take half a round trip there, acknowledgements half a one back.

    Segments leave 10 us apart, so that no two were sent at the same time.
    """

    def __init__(
        self,
        *,
        loses: Callable[[int, int], bool] = lambda segment, copy: False,
        loses_ack: Callable[[int], bool] = lambda number: False,
        segments: int | None = None,
        window: int = 10,
        most_out: int | None = None,
        control: str = "reno",
        rtt_ns: int = RTT_NS,
    ) -> None:
        """`loses(segment, copy)` counts the copies of each segment from 1; acks from 0."""
        self.clock = Clock()
        self.sent: list[tuple[int, int]] = []
        """(time, segment) of all that was sent."""
        self.delivered = 0
        self.acks: list[tuple[int, Ack]] = []
        """The acknowledgements in the order of their sending."""
        self._loses, self._loses_ack = loses, loses_ack
        self._copies: dict[int, int] = {}
        self._one_way_ns = rtt_ns // 2
        self._free_ns = 0
        """The time at which the next segment can leave, ns."""
        self.sender = Sender(
            self.clock, self._emit, rtt_ns=rtt_ns, segments=segments, window=window,
            most_out=most_out, control=CONTROLS[control],
        )  # fmt: skip
        self.receiver = Receiver(self.clock, self._acknowledge, self._deliver, rtt_ns=rtt_ns)

    def run(self, ms: float) -> None:
        """Run until this time."""
        self.clock.run(round(ms * MS))

    def times_ms(self, segment: int) -> list[float]:
        """The times at which the copies of a segment were sent, ms."""
        return [time / MS for time, sent in self.sent if sent == segment]

    def _emit(self, segment: int) -> None:
        self.sent.append((self.clock.now_ns, segment))
        copy = self._copies[segment] = self._copies.get(segment, 0) + 1
        if not self._loses(segment, copy):
            self._free_ns = max(self._free_ns + SPACING_NS, self.clock.now_ns)
            self.clock.at(self._free_ns + self._one_way_ns, self.receiver.receive, segment)

    def _acknowledge(self, ack: Ack) -> None:
        self.acks.append((self.clock.now_ns, ack))
        if not self._loses_ack(len(self.acks) - 1):
            self.clock.at(self.clock.now_ns + self._one_way_ns, self.sender.acknowledge, ack)

    def _deliver(self, count: int) -> None:
        self.delivered += count


def first_copies(*segments: int) -> Callable[[int, int], bool]:
    """Lose the first copy of each of these."""
    return lambda segment, copy: copy == 1 and segment in segments
