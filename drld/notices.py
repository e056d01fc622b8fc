"""What a daemon logs of its peers: each change once, and nothing of what passes by itself.

That somebody is suspected is not logged: it is refuted, or followed by a verdict. Of one peer's
verdicts there is a line in `QUIET_NS` at most, with what holds then: who has the key can have them
change many times a second.
"""

from __future__ import annotations

from collections.abc import Iterator

from drld.engine import Engine
from drld.gossip.control_wire import State
from drld.gossip.probes import Probes
from drld.model import NS_PER_S

QUIET_NS = 10 * NS_PER_S

_GONE = {State.DEAD: "is dead: nobody has heard from it", State.LEFT: "has left"}


class Notices:
    """Remembers what was said already."""

    def __init__(self) -> None:
        self._gone: dict[str, State] = {}
        self._said_ns: dict[str, int] = {}
        """When there was a line of a peer last."""
        self._isolated = False
        self._disagreeing: dict[str, list[str]] = {}
        self._probes: Probes | None = None
        """Those of the configuration in force: with another one, limits are compared anew."""

    def lines(self, engine: Engine, now_ns: int) -> Iterator[str]:
        """What is new since the last call."""
        probes = engine.probes
        if probes is None:
            return
        if probes is not self._probes:
            self._probes = probes
            self._disagreeing = {}
        engine.judged &= {peer.name for peer in engine.spec.peers}
        for peer in sorted(engine.judged):
            said_ns = self._said_ns.get(peer)
            if said_ns is not None and now_ns - said_ns < QUIET_NS:
                continue
            engine.judged.discard(peer)
            state = probes.verdicts.state(peer)
            if state in _GONE and self._gone.get(peer) is not state:
                self._gone[peer] = state
                self._said_ns[peer] = now_ns
                yield f"peer {peer} {_GONE[state]}"
            elif state is State.ALIVE and self._gone.pop(peer, None) is not None:
                self._said_ns[peer] = now_ns
                yield f"peer {peer} is back"
        if probes.isolated(now_ns) is not self._isolated:
            self._isolated = not self._isolated
            yield ("no peer answers" if self._isolated else "peers answer again")
        # A change of the whole fleet's limits reaches one after the other: only what lasts until
        # the limits are found is said.
        disagreeing = {peer: limits for peer, limits in engine.disagreements().items() if limits}
        if disagreeing == self._disagreeing:
            return
        for peer, limits in disagreeing.items():
            if limits != self._disagreeing.get(peer):
                yield f"peer {peer} is configured otherwise for the limits {', '.join(limits)}"
        for peer in self._disagreeing.keys() - disagreeing.keys():
            yield f"peer {peer} is configured with the same limits again"
        self._disagreeing = disagreeing
