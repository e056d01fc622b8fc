"""What an engine holds of one limit beside the limiter itself: its schedule and what it counted."""

from __future__ import annotations

from dataclasses import dataclass, field

from drld.limiter import Limiter, Tick
from drld.model import Measurement


@dataclass(slots=True)
class Totals:
    """What the datapath counted for one limit since the daemon started."""

    arrived_bytes: int = 0
    arrived_packets: int = 0
    forwarded_bytes: int = 0
    forwarded_packets: int = 0
    dropped_bytes: int = 0
    dropped_packets: int = 0

    def add(self, measured: Measurement) -> None:
        """Count what was counted since the last read."""
        self.arrived_bytes += measured.arrived_bytes
        self.arrived_packets += measured.arrived_packets
        self.forwarded_bytes += measured.forwarded_bytes
        self.forwarded_packets += measured.forwarded_packets
        self.dropped_bytes += measured.dropped_bytes
        self.dropped_packets += measured.dropped_packets


@dataclass(slots=True)
class Entry:
    """One limit: its limiter, its schedule, its last tick and its totals."""

    limiter: Limiter
    due_ns: int
    silent_until_ns: int = 0
    """It rested, and no packet came, up to then at least."""
    pending: bool = False
    """It was woken and has not been ticked since."""
    last: Tick | None = None
    totals: Totals = field(default_factory=Totals)
