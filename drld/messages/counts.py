"""What is counted of one limit on messages, for its measurements and for operators."""

from __future__ import annotations

from dataclasses import dataclass, field

from drld.messages.latency import DelayWindow
from drld.messages.recording import Recording
from drld.messages.spec import ITEM
from drld.model import Measurement
from drld.police.waits import Delays


@dataclass(slots=True)
class Counts:
    """Counts of one limit since the daemon started."""

    read_ns: int
    """When they were read last; at first, since when they count."""
    arrived: int = 0
    """Messages that came to it."""
    at_once: int = 0
    """Of those, messages that have passed it without a delay."""
    dropped: int = 0
    waited: int = 0
    """Messages that found no token when they came, or in shadow mode would have found none."""
    waiting: int = 0
    """Messages that wait now; in shadow mode, that would."""
    delays: DelayWindow = field(default_factory=DelayWindow)
    recording: Recording | None = None
    """Of arrivals, while somebody profiles the limit."""
    _late: int = 0
    """Messages that have passed after a delay."""
    _read: tuple[int, int, int] = (0, 0, 0)
    """Messages that arrived, passed and were dropped until the last `read`."""

    def arrive(self, now_ns: int) -> None:
        """Count a message that comes to the limit."""
        self.arrived += 1
        if self.recording is not None:
            self.recording.add(now_ns)

    def passed(self, delay_ns: int) -> None:
        """Count a message that has passed, and its access delay. Of one that has come and passed at
        once, `at_once` counts."""
        if delay_ns:
            self._late += 1
            self.delays.add(delay_ns)
        else:
            self.at_once += 1

    @property
    def forwarded(self) -> int:
        """Messages that have passed."""
        return self.at_once + self._late

    def recent(self, now_ns: int) -> Delays:
        """The access delays of the last minute."""
        self.delays.turn(now_ns, self.at_once)
        return self.delays.delays()

    @property
    def had_traffic(self) -> bool:
        """Whether there is something to read, or messages wait."""
        return self._read != (self.arrived, self.forwarded, self.dropped) or self.waiting > 0

    def read(self, now_ns: int) -> Measurement:
        """The counts since the last read."""
        arrived, forwarded, dropped = self._read
        measurement = Measurement(
            interval_ns=now_ns - self.read_ns,
            arrived_bytes=(self.arrived - arrived) * ITEM,
            arrived_packets=self.arrived - arrived,
            forwarded_bytes=(self.forwarded - forwarded) * ITEM,
            forwarded_packets=self.forwarded - forwarded,
            dropped_bytes=(self.dropped - dropped) * ITEM,
            dropped_packets=self.dropped - dropped,
        )
        self._read = self.arrived, self.forwarded, self.dropped
        self.read_ns = now_ns
        self.delays.turn(now_ns, self.at_once)
        return measurement
