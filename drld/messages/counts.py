"""The counts of one limit on messages, for its measurements and for operators."""

from __future__ import annotations

from dataclasses import dataclass, field

from drld.messages.latency import DelayWindow
from drld.messages.recording import Recording
from drld.messages.spec import ITEM
from drld.model import Measurement
from drld.police.waits import Delays


@dataclass(slots=True)
class Counts:
    """The counts of one limit since the daemon started."""

    read_ns: int
    """The time of the last `read`; at first, the time at which the counts began."""
    at_once: int = 0
    """Messages that have passed the limit when they came."""
    waited: int = 0
    """Messages that found no token when they came, or in shadow mode would have found none."""
    dropped: int = 0
    """Messages that the limit has dropped."""
    waiting: int = 0
    """Messages that wait now; in shadow mode, that would wait."""
    delays: DelayWindow = field(default_factory=DelayWindow)
    recording: Recording | None = None
    """The arrivals, while an operator profiles the limit."""
    _late: int = 0
    """Messages that have waited and passed."""
    _read: tuple[int, int, int] = (0, 0, 0)
    """Messages that had arrived, passed and been dropped at the last `read`."""

    @property
    def arrived(self) -> int:
        """Messages that have come to the limit: each of them is in one of these counts."""
        return self.at_once + self.waited + self.dropped

    def arrive(self, now_ns: int) -> None:
        """Record the arrival of a message, if an operator profiles the limit."""
        if self.recording is not None:
            self.recording.add(now_ns)

    def leave(self, delay_ns: int) -> None:
        """Count the access delay of a message that `waited` has counted, and that passes now."""
        self._late += 1
        self.delays.add(delay_ns)

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
            arrived_tokens=(self.arrived - arrived) * ITEM,
            arrived_items=self.arrived - arrived,
            forwarded_tokens=(self.forwarded - forwarded) * ITEM,
            forwarded_items=self.forwarded - forwarded,
            dropped_tokens=(self.dropped - dropped) * ITEM,
            dropped_items=self.dropped - dropped,
        )
        self._read = self.arrived, self.forwarded, self.dropped
        self.read_ns = now_ns
        self.delays.turn(now_ns, self.at_once)
        return measurement
