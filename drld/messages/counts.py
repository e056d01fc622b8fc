"""The counts of one limit on messages, for its measurements and for operators."""

from __future__ import annotations

from dataclasses import dataclass, field

from drld.messages.latency import DelayWindow
from drld.messages.spec import ITEM
from drld.model import Measurement
from drld.police.waits import Delays


@dataclass(slots=True)
class Counts:
    """The counts of one limit.

    Most of them begin again at each `read`: CPython allocates no object for a small number, and
    so most messages touch one less.
    """

    read_ns: int
    """The time of the last `read`; at first, the time at which the counts began."""
    at_once: int = 0
    """Messages that have passed the limit when they came, since the last `read`."""
    waited: int = 0
    """Messages that found no token when they came, or in shadow mode would have found none, since
    the last `read`."""
    dropped: int = 0
    """Messages that the limit has dropped since the last `read`."""
    waiting: int = 0
    """Messages that wait now; in shadow mode, that would wait."""
    delays: DelayWindow = field(default_factory=DelayWindow)
    late: int = 0
    """Messages that have waited and passed, since the last `read`."""
    _at_once_before: int = 0
    _waited_before: int = 0
    """The counts until the last `read`, since the daemon started."""

    def leave(self, delay_ns: int) -> None:
        """Count the access delay of a message that `waited` has counted, and that passes now."""
        self.late += 1
        self.delays.add(delay_ns)

    @property
    def ever_waited(self) -> int:
        """Number of messages that have waited since the daemon started."""
        return self._waited_before + self.waited

    def recent(self, now_ns: int) -> Delays:
        """The access delays of the last minute."""
        self.delays.turn(now_ns, self._at_once_before + self.at_once)
        return self.delays.delays()

    def read(self, now_ns: int, backlog: int = 0, saturated: bool = False) -> Measurement:
        """The counts since the last read, with the other two figures of a queue."""
        arrived = self.at_once + self.waited + self.dropped
        forwarded = self.at_once + self.late
        measurement = Measurement(
            interval_ns=now_ns - self.read_ns,
            arrived_tokens=arrived * ITEM,
            arrived_items=arrived,
            forwarded_tokens=forwarded * ITEM,
            forwarded_items=forwarded,
            dropped_tokens=self.dropped * ITEM,
            dropped_items=self.dropped,
            backlog=backlog,
            saturated=saturated,
        )
        self._at_once_before += self.at_once
        self._waited_before += self.waited
        self.at_once = self.waited = self.dropped = self.late = 0
        self.read_ns = now_ns
        self.delays.turn(now_ns, self._at_once_before)
        return measurement
