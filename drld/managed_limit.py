"""The state of one limit in an engine: its limiter, schedule, last tick and totals."""

from __future__ import annotations

from dataclasses import dataclass, field

from drld.estimate.traffic_profile import TrafficProfile
from drld.limiter import Limiter, Tick
from drld.model import Measurement
from drld.police.datapath import Datapath
from drld.policy import Mode
from drld.spec import Target


@dataclass(slots=True)
class Totals:
    """Bytes and packets that the datapath counted for one limit since the daemon started."""

    arrived_bytes: int = 0
    arrived_packets: int = 0
    forwarded_bytes: int = 0
    forwarded_packets: int = 0
    dropped_bytes: int = 0
    dropped_packets: int = 0
    marked_bytes: int = 0
    marked_packets: int = 0

    def add(self, measured: Measurement) -> None:
        """Add the counts since the last read."""
        self.arrived_bytes += measured.arrived_bytes
        self.arrived_packets += measured.arrived_packets
        self.forwarded_bytes += measured.forwarded_bytes
        self.forwarded_packets += measured.forwarded_packets
        self.dropped_bytes += measured.dropped_bytes
        self.dropped_packets += measured.dropped_packets
        self.marked_bytes += measured.marked_bytes
        self.marked_packets += measured.marked_packets


@dataclass(slots=True)
class ManagedLimit:
    """One limit of an engine."""

    limiter: Limiter
    datapath: Datapath
    """The datapath of the plane that the limit's target belongs to."""
    due_ns: int
    silent_until_ns: int = 0
    """The limit was quiescent, and no packet came, at least until this time."""
    pending: bool = False
    """The limit was woken and has not been ticked since."""
    last: Tick | None = None
    ticked_ns: int = 0
    """Time of the last counts in `totals`, ns."""
    totals: Totals = field(default_factory=Totals)
    target: Target | None = None
    profile: TrafficProfile | None = None
    """The rates that the limit's traffic would have needed; None: no traffic came, or the limit is
    in force.

    Senders that are slowed down do not show their needs. Also, a profile makes each tick a fifth
    longer.
    """

    def observe(self, measured: Measurement, now_ns: int) -> None:
        """Take in what the datapath counted until now."""
        self.totals.add(measured)
        if self.limiter.policy.mode is Mode.ENFORCE:
            self.profile = None
            return
        if self.profile is None:
            if not measured.arrived_bytes:
                return
            start_ns = now_ns - measured.interval_ns
            self.profile = TrafficProfile(self.limiter.policy.unit.min_rate, start_ns)
        self.profile.add(measured.arrived_bytes, measured.interval_ns, now_ns)
