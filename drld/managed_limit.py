"""The state of one limit in an engine: its limiter, schedule, last tick and totals."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from drld.estimate.traffic_profile import TrafficProfile
from drld.limiter import Limiter, Tick
from drld.model import Measurement
from drld.police.datapath import Datapath
from drld.policy import Mode
from drld.spec import Target


@dataclass(slots=True)
class ManagedLimit:
    """One limit of an engine, with its datapath and its schedule."""

    limiter: Limiter
    datapath: Datapath
    """The datapath of the plane that the limit's target belongs to."""
    due_ns: int
    silent_until_ns: int = 0
    """The limit was quiescent, and no item came, at least until this time."""
    pending: bool = True
    """The limit has not been ticked since it was made, changed or woken: it may not sleep."""
    last: Tick | None = None
    ticked_ns: int = 0
    """Time of the last counts in `totals`, ns."""
    totals: Measurement = field(default_factory=partial(Measurement, 0))
    """The counts since the daemon started."""
    target: Target | None = None
    profile: TrafficProfile | None = None
    """The rates that the limit's traffic would have needed; None: no traffic came, or the limit is
    in force.

    Senders that are slowed down do not show their needs. Also, a profile makes each tick a fifth
    longer.
    """

    def observe(self, measured: Measurement, now_ns: int) -> None:
        """Take in what the datapath counted until now."""
        self.totals = self.totals.plus(measured)
        if self.limiter.policy.mode is Mode.ENFORCE:
            self.profile = None
            return
        if self.profile is None:
            if not measured.arrived_tokens:
                return
            start_ns = now_ns - measured.interval_ns
            self.profile = TrafficProfile(self.limiter.policy.unit.min_rate, start_ns)
        self.profile.add(measured.arrived_tokens, measured.interval_ns, now_ns)
