"""Whether others hear a limiter and it hears them: what it may say of them depends on it.

Theory of operation. It probes somebody every period (`drld.gossip.probes`), so it knows when it
sent the newest message that somebody answered. With R and Q of `drld.gossip.probe_times`:

In touch is who does not pass two periods without an answer. A refutation passes by who is out of
touch, so its suspicions do not age, and it declares nobody dead before it has *caught up*: been in
touch for R, which is how long news takes to come round.

Isolated is who gets no answer for Q, until it has caught up: those who suspect it have to hear the
refutation first. It accuses nobody then, and its suspicions do not age: it would come back with a
list of dead that are not.
"""

from __future__ import annotations

from dataclasses import dataclass

from drld.gossip.probe_times import ProbeTimes


@dataclass(slots=True)
class Touch:
    """What one limiter knows of this."""

    times: ProbeTimes
    _answered_ns: int | None = None
    """When the newest message was sent that somebody answered."""
    _since_ns: int | None = None
    """Since when it is in touch."""
    _isolated: bool = False
    """At the last look."""

    def meet(self, now_ns: int) -> None:
        """Somebody has completed a handshake with it: the first answer, if there was none."""
        if self._answered_ns is None:
            self._answered_ns = now_ns

    def answer(self, sent_ns: int) -> None:
        """Somebody answered what was sent then."""
        self._answered_ns = max(sent_ns, self._answered_ns or sent_ns)

    def look(self, now_ns: int) -> None:
        """Take note of how it is, once a tick; all that had come by now has been taken in."""
        if self._answered_ns is None or self._unanswered(2 * self.times.period_ns, now_ns):
            self._since_ns = None
        elif self._since_ns is None:
            self._since_ns = now_ns
        self._isolated = self.isolated(now_ns) and not self.caught_up(now_ns)

    def isolated(self, now_ns: int) -> bool:
        """Whether the others may hold it for dead.

        Who never met anybody is not isolated: nobody holds it for anything.
        """
        return self._isolated or self._unanswered(self.times.isolation_ns, now_ns)

    def caught_up(self, now_ns: int) -> bool:
        """Whether it has been in touch for R at the last look."""
        return self._since_ns is not None and now_ns - self._since_ns > self.times.spread_ns

    @property
    def lost(self) -> bool:
        """Whether it was isolated or out of touch at the last look."""
        return self._isolated or self._since_ns is None

    def _unanswered(self, span_ns: int, now_ns: int) -> bool:
        return self._answered_ns is not None and now_ns - self._answered_ns > span_ns
