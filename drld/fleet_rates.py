"""The traffic that the other limiters forward under a limit, for a page that shows the limit.

Shares follow from demand, or from weights, so gossip tells these and nothing else. The forwarded
traffic decides nothing, and is told to limiters that ask. A limiter whose page is closed neither
asks nor answers. While a page shows a limit, each peer gets a question and gives an answer a
second.

Rates are differences of totals over the time between their counts, by the clock of the limiter that
counted. So they are exact however late an answer comes, and a lost one costs nothing.

Bounds. A page can show `MOST_WATCHED` limits at a time. `MOST_QUESTIONS` questions and
`MOST_ANSWERS` answers leave in a tick. A fleet of a thousand is asked in two seconds, at ticks of
50 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from drld.gossip.wire.counts_codec import KIND, Counts
from drld.model import NS_PER_S
from drld.planes.plane import Plane
from drld.police.no_datapath import NoDatapath

PERIOD_NS = NS_PER_S
"""Time between two questions for the same totals."""
WATCH_NS = 5 * NS_PER_S
"""Time for which a look lasts: the page asks once a second."""
MOST_WATCHED = 4
MOST_QUESTIONS = 32
MOST_ANSWERS = 64
MOST_MISSED = 2
"""Questions without an answer after which a peer's rate is not known any more."""
LEAST_NS = PERIOD_NS // 4
"""The shortest time between two counts that makes a rate: those of one tick make none."""


class Rate(NamedTuple):
    """The traffic of a peer under a limit, tokens/s."""

    peer: str
    forwarded: float
    dropped: float


@dataclass(slots=True)
class _Heard:
    """The answers of one peer about one limit."""

    counts: Counts | None = None
    """The counts before the next rate; None: no answer has come."""
    rate: Rate | None = None
    missed: int = 0
    """Questions since the last answer."""


@dataclass(slots=True)
class _Watched:
    """A limit that a page shows."""

    until_ns: int
    due_ns: int
    """Time at which the next questions are due, ns."""
    left: list[str] = field(default_factory=list)
    """Peers that are still to be asked."""
    heard: dict[str, _Heard] = field(default_factory=dict)
    """The answers of each peer that is asked."""


class _Nothing:
    """The target of no limit."""


class FleetRates(Plane):
    """Asks peers for their totals, and answers them; a plane without limits of its own."""

    def __init__(self, counted: Callable[[int, int], Counts | None]) -> None:
        """`counted` returns this limiter's totals of a limit at a time, ns; None: no such limit."""
        super().__init__(_Nothing, NoDatapath("it polices nothing"))
        self.handlers = {KIND: self._take}
        self._counted = counted
        self._watched: dict[int, _Watched] = {}
        self._answers: dict[tuple[str, int], None] = {}
        """Peers and limits of the answers to send, in the order of the questions."""

    def watch(self, limit_id: int, peers: Iterable[str], now_ns: int) -> None:
        """Somebody looks at a limit: ask these peers, for the next `WATCH_NS`."""
        watched = self._watched.get(limit_id)
        if watched is None:
            if len(self._watched) >= MOST_WATCHED:
                return
            watched = self._watched[limit_id] = _Watched(now_ns, now_ns)
        watched.until_ns = now_ns + WATCH_NS
        known = watched.heard
        watched.heard = {peer: known.get(peer) or _Heard() for peer in peers}

    def rates(self, limit_id: int) -> list[Rate]:
        """The rates of the peers that answer."""
        watched = self._watched.get(limit_id)
        found = watched.heard.values() if watched else ()
        return [it.rate for it in found if it.rate is not None and it.missed <= MOST_MISSED]

    def tick(self, now_ns: int) -> Iterable[tuple[str, int, Any]]:
        """See `Plane.tick`: answers, and questions that are due."""
        for peer, limit_id in self._answers:
            if (counts := self._counted(limit_id, now_ns)) is not None:
                yield peer, KIND, counts
        self._answers.clear()
        for limit_id in [it for it, found in self._watched.items() if found.until_ns < now_ns]:
            del self._watched[limit_id]
        left = MOST_QUESTIONS
        for limit_id, watched in self._watched.items():
            if not watched.left and watched.due_ns <= now_ns:
                watched.left = [*watched.heard]
                watched.due_ns = now_ns + PERIOD_NS
            asked, watched.left = watched.left[:left], watched.left[left:]
            left -= len(asked)
            for peer in asked:
                if (heard := watched.heard.get(peer)) is not None:
                    heard.missed += 1
                    yield peer, KIND, Counts(limit_id, asks=True)

    def set_peers(self, peers: Collection[str]) -> None:  # noqa: ARG002 -- a look names them
        """See `Plane.set_peers`: the next look names the peers to ask."""
        for watched in self._watched.values():
            watched.left = []
            watched.heard = {}

    def on_session(self, peer: str) -> None:
        """See `Plane.on_session`: another life counts from 0."""
        for watched in self._watched.values():
            if peer in watched.heard:
                watched.heard[peer] = _Heard()

    def _take(self, peer: str, counts: Counts, _: int) -> None:
        if counts.asks:
            if len(self._answers) < MOST_ANSWERS:
                self._answers[peer, counts.limit_id] = None
            return
        watched = self._watched.get(counts.limit_id)
        if watched is None or (heard := watched.heard.get(peer)) is None:
            return
        heard.missed = 0
        before = heard.counts
        if before is None or counts.forwarded < before.forwarded or counts.dropped < before.dropped:
            heard.counts = counts
        elif (span_ns := counts.counted_ns - before.counted_ns) >= LEAST_NS:
            scale = NS_PER_S / span_ns
            forwarded = (counts.forwarded - before.forwarded) * scale
            heard.rate = Rate(peer, forwarded, (counts.dropped - before.dropped) * scale)
            heard.counts = counts
