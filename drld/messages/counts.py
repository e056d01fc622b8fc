"""What is counted of one limit on messages, for its measurements and for operators."""

from __future__ import annotations

from dataclasses import dataclass, field

from drld.messages.latency import DelayWindow
from drld.messages.recording import Recording
from drld.messages.spec import ITEM
from drld.model import Measurement


@dataclass(slots=True)
class Counts:
    """Counts of one limit since the daemon started."""

    arrived: int = 0
    """Messages that came to it."""
    forwarded: int = 0
    """Of those, messages that have passed it."""
    dropped: int = 0
    waited: int = 0
    """Messages that found no token when they came, or in shadow mode would have found none."""
    waiting: int = 0
    """Messages that wait now; in shadow mode, that would."""
    delays: DelayWindow = field(default_factory=DelayWindow)
    recording: Recording | None = None
    """Of arrivals, while somebody profiles the limit."""
    _read: tuple[int, int, int] = (0, 0, 0)
    """Messages that arrived, passed and were dropped until the last `read`."""
    _read_ns: int = 0

    def arrive(self, now_ns: int) -> None:
        """Count a message that comes to the limit."""
        self.arrived += 1
        if self.recording is not None:
            self.recording.add(now_ns)

    def passed(self, delay_ns: int) -> None:
        """Count a message that has passed, and its access delay."""
        self.forwarded += 1
        self.delays.add(delay_ns)

    @property
    def had_traffic(self) -> bool:
        """Whether there is something to read, or messages wait."""
        return self._read != (self.arrived, self.forwarded, self.dropped) or self.waiting > 0

    def read(self, now_ns: int) -> Measurement:
        """The counts since the last read."""
        arrived, forwarded, dropped = self._read
        measurement = Measurement(
            interval_ns=now_ns - self._read_ns,
            arrived_bytes=(self.arrived - arrived) * ITEM,
            arrived_packets=self.arrived - arrived,
            forwarded_bytes=(self.forwarded - forwarded) * ITEM,
            forwarded_packets=self.forwarded - forwarded,
            dropped_bytes=(self.dropped - dropped) * ITEM,
            dropped_packets=self.dropped - dropped,
        )
        self._read = self.arrived, self.forwarded, self.dropped
        self._read_ns = now_ns
        self.delays.turn(now_ns)
        return measurement
