"""The contact between a limiter and its peers, on which its verdicts about them depend.

Theory of operation. A limiter probes a peer every period (`drld.gossip.health.probes`), so it knows
when it sent the newest message that some peer answered. With R and Q of
`drld.gossip.health.probe_times`:

A limiter is *in contact* while no two periods pass without an answer. A limiter out of contact may
miss a refutation. Its suspicions therefore do not age. It declares no peer dead before it has
*caught up*: been in contact for R, the time that a rumour needs to reach every limiter.

A limiter is *isolated* once no answer has come for Q, until it has caught up. The peers that
suspect it must hear its refutation first. An isolated limiter accuses no peer, and its suspicions
do not age: otherwise it would declare living peers dead when it comes back.
"""

from __future__ import annotations

from dataclasses import dataclass

from drld.gossip.health.probe_times import ProbeTimes


@dataclass(slots=True)
class Isolation:
    """The contact of one limiter with its peers."""

    times: ProbeTimes
    _answered_ns: int | None = None
    """Time at which the newest answered message was sent, ns."""
    _since_ns: int | None = None
    """Begin of the present contact; None: out of contact."""
    _isolated: bool = False
    """Whether the limiter was isolated at the last `look`."""

    def meet(self, now_ns: int) -> None:
        """Note that a peer has completed a handshake: it counts as the first answer."""
        if self._answered_ns is None:
            self._answered_ns = now_ns

    def answer(self, sent_ns: int) -> None:
        """Note that a peer answered a message that was sent at `sent_ns`."""
        self._answered_ns = max(sent_ns, self._answered_ns or sent_ns)

    def look(self, now_ns: int) -> None:
        """Update the state; call it once a tick, after all messages were received."""
        if self._answered_ns is None or self._unanswered(2 * self.times.period_ns, now_ns):
            self._since_ns = None
        elif self._since_ns is None:
            self._since_ns = now_ns
        self._isolated = self.isolated(now_ns) and not self.caught_up(now_ns)

    def isolated(self, now_ns: int) -> bool:
        """Whether the peers may have declared this limiter dead.

        A limiter that never met a peer is not isolated: no peer has a state for it.
        """
        return self._isolated or self._unanswered(self.times.isolation_ns, now_ns)

    def caught_up(self, now_ns: int) -> bool:
        """Whether the limiter had been in contact for R at the last `look`."""
        return self._since_ns is not None and now_ns - self._since_ns > self.times.spread_ns

    @property
    def cut_off(self) -> bool:
        """Whether the limiter was isolated or out of contact at the last `look`."""
        return self._isolated or self._since_ns is None

    def _unanswered(self, span_ns: int, now_ns: int) -> bool:
        return self._answered_ns is not None and now_ns - self._answered_ns > span_ns
