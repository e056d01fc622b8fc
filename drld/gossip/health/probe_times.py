"""How long probes wait for what, and the proof that a verdict of death does not come too soon:
whoever is declared dead knows by then that it is cut off, or its datapath has fallen back.

Nobody's share depends on it, for verdicts count nobody out (`drld.gossip.fabrics.membership`).

With N limiters, the period P, and g = max(1, log10 N):

    retransmissions   ceil(retransmissions log10(N + 1)): how often each passes a rumour on
    R  spread         suspicion g P: a suspicion reaches its subject, and the refutation everybody
    Q  isolation      isolation P: no answer to anything for so long, and a limiter takes itself
                      for cut off. Silence has given it its static share by then, if rounds are not
                      slow: after 17 of them in a mesh, 21 + 2 h in a tree, h the bits of N
    F  fallback       20 of the longest estimate interval: the kernel datapath of a daemon that
                      does not tick has its static share after that (docs/operations.md)
    suspicion         at least R + Q + F, at most suspicion_max R + Q + F; the part above the least
                      shrinks with the logarithm of the number of confirmations, as Lifeguard's

A limiter that ticks late waits (1 + a) times as long for answers before it suspects anybody, where
a, its awareness, is 0 to `patience`. It probes as often as ever, as its own isolation rests on
that.

Detection. A limiter that dies is probed by somebody after P / (1 - 1/e) on average (SWIM), and by a
given one within 2 (N - 1) P. It is judged P (1 + a) later, and dead after the suspicion. So all
that live know it after 1.6 P + P + suspicion, plus the spread of the verdict, on average.

Proof that who is declared dead takes itself for cut off, or has fallen back. Say that a limiter A
declares a limiter B dead at t, by a suspicion raised at s; so t >= s + R + Q + F, and A has been in
touch for R: in [t - R, t] no 2 P passed without an answer, and A has told its suspicion.
Let b be when the newest message was sent that somebody answered B, of those before t; B's own
record of it is no later.

- Nobody answered B in [s + R, t], so b <= s + R. B takes itself for cut off at its first tick
  after b + Q. If it ticks on, that is one interval later at the most. If not, or if it is dead,
  its kernel datapath has fallen back F after its last tick, which was before b + Q or cut it off.
  Either way that is so by b + Q + F <= s + R + Q + F <= t.
- Somebody answered B in [s + R, t], and B was cut off at some time in [s, t]. It stays so until it
  has been in touch for R. If that is later than t, B is cut off at t. If not, the others have heard
  the refutation: A too, or, if A was out of touch, in its last R, from them.
- B was answered all the time. Then the same holds for R after s.

The last two rest on R: on a suspicion and its refutation spreading among those in touch within R -
2 P, as they do with some probability (docs/gossip.md has figures), and on one of those that heard
the refutation being there when A asks. The first holds whatever is lost, delayed or late. What all
this covers is a limiter that nobody answers. Two or more that are cut off together answer each
other, and are dead to the rest although neither takes itself for cut off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from drld.model import GRACE_INTERVALS
from drld.spec import ProbeSpec

CONFIRMATIONS = 3
"""Of a suspicion, by others, after which it is as short as it gets."""
_LEAST_TICKS = 4
"""An answer takes two ticks, one on either end, and may just miss both."""


@dataclass(frozen=True, slots=True)
class ProbeTimes:
    """The times of one limiter; ns."""

    tick_ns: int
    """How often it looks."""
    period_ns: int
    timeout_ns: int
    spread_ns: int
    """R."""
    isolation_ns: int
    suspicion_min_ns: int
    suspicion_max_ns: int
    confirmations: int
    """After which a suspicion is shortest."""
    transmissions: int
    helpers: int
    patience: int

    @classmethod
    def of(cls, spec: ProbeSpec, members: int, tick_ns: int, interval_ns: int) -> ProbeTimes:
        """For a fleet of so many; `interval_ns` is the longest estimate interval of a limit.

        A fleet that ticks slowly probes and waits no faster than it can answer.
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
        """How long a suspicion lasts that so many others have confirmed."""
        if confirmations >= self.confirmations:
            return self.suspicion_min_ns
        part = math.log(confirmations + 1) / math.log(self.confirmations + 1)
        return self.suspicion_max_ns - round((self.suspicion_max_ns - self.suspicion_min_ns) * part)
