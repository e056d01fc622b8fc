"""The times of probes, and the proof that no limiter is declared dead too soon.

By the time at which a limiter is declared dead, it is isolated, or its datapath has fallen back. No
share depends on this, as verdicts change no membership (`drld.gossip.fabrics.membership`).

With N limiters, the period P, and g = max(1, log10 N):

    retransmissions   ceil(retransmissions log10(N + 1)): times that a limiter sends a rumour
    R  spread         suspicion g P: time in which a suspicion reaches its subject, and the
                      refutation reaches every limiter
    Q  isolation      isolation P: a limiter without any answer for this time is isolated. By then
                      it enforces its static share, unless rounds are slow: after 17 rounds in a
                      mesh, 21 + 2 h in a tree, where h is the number of bits of N
    F  fallback       20 of the longest estimate interval: without ticks the kernel datapath then
                      enforces the fallback (docs/operations.md)
    suspicion         from R + Q + F to suspicion_max R + Q + F; the part above the minimum shrinks
                      with the logarithm of the number of confirmations, as in Lifeguard

A limiter that ticks late waits (1 + a) times as long for answers before it suspects a peer, where
a, its awareness, is 0 to `patience`. It probes as often as before, as its own isolation depends on
that.

Detection. Some limiter probes a dead one after P / (1 - 1/e) on average (SWIM), and a given limiter
within 2 (N - 1) P. The suspicion begins P (1 + a) later. So on average all living limiters know of
the death after 1.6 P + P + suspicion, plus the spread of the verdict.

Proof that a limiter declared dead is isolated or has fallen back. Let limiter A declare limiter B
dead at time t, after a suspicion raised at s. Then t >= s + R + Q + F, and A was in contact for R:
in [t - R, t] no 2 P passed without an answer, and A repeated its suspicion. Let b be the sending
time of B's newest message that was answered before t. B's own record of it is not later.

- No peer answered B in [s + R, t], so b <= s + R. B is isolated at its first tick after b + Q. If B
  goes on ticking, this is at most one interval later. If B stops, or is dead, its kernel datapath
  falls back F after its last tick. That tick was before b + Q, or it isolated B. In both cases the
  claim holds by b + Q + F <= s + R + Q + F <= t.
- A peer answered B in [s + R, t], and B was isolated at some time in [s, t]. B stays isolated until
  it has been in contact for R. If that ends after t, B is isolated at t. If not, the other limiters
  have heard its refutation. A has heard it, too: at once, or from them in its last R of contact.
- B was answered all the time. Then the same holds for R after s.

The last two cases assume that a suspicion and its refutation spread among limiters in contact
within R - 2 P, which has a high probability (docs/gossip.md has figures). They also assume that a
limiter that heard the refutation is present when A asks. The first case holds for any loss and
delay. The proof covers a limiter that no peer answers. Two or more limiters that are cut off
together answer each other: the rest declares them dead although none of them is isolated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from drld.model import GRACE_INTERVALS
from drld.spec import ProbeSpec

CONFIRMATIONS = 3
"""Number of confirmations by other limiters that makes a suspicion shortest."""
_LEAST_TICKS = 4
"""Ticks until a timeout: an answer takes a tick on either end, and may just miss both."""


@dataclass(frozen=True, slots=True)
class ProbeTimes:
    """The times of one limiter, in ns."""

    tick_ns: int
    """Time between two ticks."""
    period_ns: int
    """P, the time between two probes of this limiter."""
    timeout_ns: int
    """Time to wait for an answer before asking helpers."""
    spread_ns: int
    """R, the time for a suspicion and its refutation to reach every limiter."""
    isolation_ns: int
    """Q, the time without any answer after which a limiter takes itself for isolated."""
    suspicion_min_ns: int
    suspicion_max_ns: int
    confirmations: int
    """Number of confirmations that makes a suspicion shortest."""
    transmissions: int
    helpers: int
    patience: int

    @classmethod
    def of(cls, spec: ProbeSpec, members: int, tick_ns: int, interval_ns: int) -> ProbeTimes:
        """The times for a fleet of `members`; `interval_ns`: a limit's longest estimate interval.

        Slow ticks make timeout and period longer, so that answers can come in time.
        """
        timeout_ns = max(spec.timeout_ns, _LEAST_TICKS * tick_ns)
        period_ns = max(spec.period_ns, 2 * timeout_ns)
        spread_ns = math.ceil(spec.suspicion * max(1.0, math.log10(members)) * period_ns)
        isolation_ns = spec.isolation * period_ns
        shrunk_ns = isolation_ns + GRACE_INTERVALS * max(tick_ns, interval_ns)
        return cls(
            tick_ns=tick_ns,
            period_ns=period_ns,
            timeout_ns=timeout_ns,
            spread_ns=spread_ns,
            isolation_ns=isolation_ns,
            suspicion_min_ns=spread_ns + shrunk_ns,
            suspicion_max_ns=round(spec.suspicion_max * spread_ns) + shrunk_ns,
            confirmations=max(0, min(CONFIRMATIONS, members - 2)),
            transmissions=math.ceil(spec.retransmissions * math.log10(members + 1)),
            helpers=spec.helpers,
            patience=spec.patience,
        )

    def suspicion_ns(self, confirmations: int) -> int:
        """The duration of a suspicion that this many other limiters have confirmed, in ns."""
        if confirmations >= self.confirmations:
            return self.suspicion_min_ns
        part = math.log(confirmations + 1) / math.log(self.confirmations + 1)
        return self.suspicion_max_ns - round((self.suspicion_max_ns - self.suspicion_min_ns) * part)
