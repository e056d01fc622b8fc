"""One peer as a fabric knows it for one limit: counters, statistics, and whether it is there.

Theory of operation. Paper, section 5.6: a limiter counts the limiters it is disconnected from and
takes their estimates for zero. Connected means that updates flow both ways: a limiter that hears a
peer which does not hear it will be counted out by that peer, and must count itself out first. So
every update says whether its sender hears its receiver: a weight of zero denies it (and carries
nothing else).

The times follow from C, the longest a sender takes to get round all its peers (`cycle_ns`): one
interval in a mesh, ceil((N - 1) / branching) intervals where `branching` peers are sent to in
shuffled order. Two consecutive updates of a link are less than two cycles apart. With I the
interval:

    fresh         heard within S = 2 C + 2 I: hardly an update is lost
    hears a peer  (and says so) while it is fresh
    connected     heard within T = S + 20 C, and not denied by it; or denied, but confirmed
                  within T - S - 2 C - I

T lets 20 updates in a row be lost: 0.4 ** 20 = 1e-8 at 40 % loss. A fleet of 50 that sends 3000
updates a second takes one peer in about 9 hours for gone that is not, until its next update; at
20 % loss (1e-14) and below, none. At 50 ms T is 1.2 s for N = 2, 3.4 s for N = 10 with branching
3, 18.8 s for N = 50, and 1.2 s for a mesh of any size.

A link that breaks one way: the deaf end hears the last at t, denies from t + S on, and counts the
other end out at t + T. The other end has had its last confirmation by t + S, and has counted the
deaf one out by t + T - 2 C - I; what is left covers the delay of packets, and that a fabric may
look for lost peers only once a cycle.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from drld.gossip.base import LinkStats
from drld.gossip.sequence import MODULUS, Acceptance, SequenceReceiver
from drld.model import Update

SURVIVED_LOSSES = 20
"""Updates in a row that may be lost without their sender being taken for gone."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long silence and denial may last, ns."""

    fresh_ns: int
    """S."""
    silence_ns: int
    """T."""
    denial_ns: int
    """Since the last confirmation."""

    @classmethod
    def of(cls, interval_ns: int, cycle_ns: int) -> Timeouts:
        """Those that follow from the interval and the cycle of a fabric."""
        fresh_ns = 2 * cycle_ns + 2 * interval_ns
        silence_ns = fresh_ns + SURVIVED_LOSSES * cycle_ns
        return cls(fresh_ns, silence_ns, silence_ns - fresh_ns - 2 * cycle_ns - interval_ns)


@dataclass(slots=True)
class Link:
    """One peer."""

    stats: LinkStats = field(default_factory=LinkStats)
    _receiver: SequenceReceiver = field(default_factory=SequenceReceiver)
    _next_sequence: int = 0
    _confirmed_ns: int | None = None
    """When it last said that it hears us."""
    _denies: bool = True
    """What its newest update says."""

    def take_sequence(self) -> int:
        """The number of the next update to this peer."""
        sequence = self._next_sequence
        self._next_sequence = (sequence + 1) % MODULUS
        return sequence

    def accept(self, update: Update, now_ns: int) -> Acceptance | None:
        """Judge an update by its sequence number and note what it says; None: discard it."""
        acceptance = self._receiver.accept(update.sequence)
        if acceptance is None:
            self.stats.late += 1
            return None
        self.stats.received += 1
        self.stats.lost += acceptance.lost
        self.stats.last_heard_ns = now_ns
        self._denies = update.weight == 0
        if not self._denies:
            self._confirmed_ns = now_ns
        return acceptance

    def fresh(self, now_ns: int, timeouts: Timeouts) -> bool:
        """Whether we hear it."""
        return self._heard(now_ns, timeouts.fresh_ns)

    def both_ways(self, now_ns: int, timeouts: Timeouts) -> bool:
        """Whether we hear it, and it says the same of us."""
        return not self._denies and self._heard(now_ns, timeouts.fresh_ns)

    def connected(self, now_ns: int, timeouts: Timeouts) -> bool:
        """Whether updates flow both ways, as far as loss lets one know."""
        confirmed_ns = self._confirmed_ns
        if confirmed_ns is None or not self._heard(now_ns, timeouts.silence_ns):
            return False
        return not self._denies or now_ns - confirmed_ns <= timeouts.denial_ns

    def _heard(self, now_ns: int, within_ns: int) -> bool:
        heard_ns = self.stats.last_heard_ns
        return heard_ns is not None and now_ns - heard_ns <= within_ns
