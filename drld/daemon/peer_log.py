"""The log lines about peers: each lasting change once.

A suspicion is not logged: it is refuted, or the peer is declared dead. There is at most one line in
`QUIET_NS` about each subject (a peer's state, limits or version, whether any peer answers), and it
says the latest. A bad link, or a sender that has the key, can make a subject change without end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from drld.engine import GOSSIP, Engine
from drld.gossip.health.config_digest import ConfigDigest
from drld.gossip.health.probes import Probes
from drld.gossip.wire.control_codec import State
from drld.gossip.wire.message import VERSION
from drld.model import NS_PER_S

QUIET_NS = 10 * NS_PER_S

_GONE = {State.DEAD: "is dead: no limiter hears from it", State.LEFT: "has left"}


class PeerLog:
    """Remembers the lines that were logged."""

    def __init__(self) -> None:
        self._gone: dict[str, State] = {}
        self._disagreeing: dict[str, list[str]] = {}
        self._versions: dict[str, int] = {}
        """Other wire versions that were logged, by peer."""
        self._isolated = False
        self._said_ns: dict[tuple[str, ...], int] = {}
        """When the last line about each subject was logged, in the last `QUIET_NS`."""
        self._config_digest: ConfigDigest | None = None
        """The digest in force. A reload replaces it, and limits are compared from scratch."""

    def lines(self, engine: Engine, now_ns: int) -> Iterator[str]:
        """The lines to log since the last call."""
        self._said_ns = {
            said: said_ns for said, said_ns in self._said_ns.items() if now_ns - said_ns < QUIET_NS
        }
        yield from self._other_versions(engine.node.transport.other_versions, now_ns)
        probes = engine.node.probes
        if probes is None:
            return
        if probes.config_digest is not self._config_digest:
            self._config_digest = probes.config_digest
            peers = {peer.name for peer in engine.spec.peers}
            self._gone = {peer: it for peer, it in self._gone.items() if peer in peers}
            self._disagreeing = {
                peer: limits for peer, limits in self._disagreeing.items() if peer in peers
            }
        yield from self._verdicts(engine, probes, now_ns)
        if probes.isolated(now_ns) is not self._isolated and self._may_say(now_ns, "answers"):
            self._isolated = not self._isolated
            yield (
                "no peer answers this limiter: check its network"
                if self._isolated
                else "peers answer again"
            )
        yield from self._disagreements(engine, probes.config_digest, now_ns)

    def _other_versions(self, found: Mapping[str, int], now_ns: int) -> Iterator[str]:
        self._versions = {peer: it for peer, it in self._versions.items() if peer in found}
        for peer, version in found.items():
            if self._versions.get(peer) != version and self._may_say(now_ns, "version", peer):
                self._versions[peer] = version
                yield (
                    f"peer {peer} speaks wire version {version}, this limiter {VERSION}: "
                    "run the same version of drld on both"
                )

    def _verdicts(self, engine: Engine, probes: Probes, now_ns: int) -> Iterator[str]:
        judged = engine.node.judged
        judged &= {peer.name for peer in engine.spec.peers}
        for peer in sorted(judged):
            state = probes.peer_states.state(peer)
            if state in _GONE:
                changed = self._gone.get(peer) is not state
            else:
                changed = state is State.ALIVE and peer in self._gone
            if changed and not self._may_say(now_ns, "verdict", peer):
                continue
            judged.discard(peer)
            if not changed:
                continue
            if state in _GONE:
                self._gone[peer] = state
                yield f"peer {peer} {_GONE[state]}"
            else:
                del self._gone[peer]
                yield f"peer {peer} is back"

    def _disagreements(
        self, engine: Engine, config_digest: ConfigDigest, now_ns: int
    ) -> Iterator[str]:
        # A change of the whole fleet's limits reaches one limiter after the other. Only a
        # difference that lasts until its limits are found is logged.
        found = {peer: limits for peer, limits in engine.disagreements().items() if limits}
        if found == self._disagreeing:
            return
        for peer in sorted(found.keys() | self._disagreeing.keys()):
            limits = found.get(peer)
            if limits is None and not config_digest.agrees(peer):
                continue  # It has told nothing since the reload.
            if limits == self._disagreeing.get(peer) or not self._may_say(now_ns, "limits", peer):
                continue
            if limits is None:
                del self._disagreeing[peer]
                yield f"peer {peer} has the same configuration again"
            else:
                self._disagreeing[peer] = limits
                yield f"peer {peer} has a different configuration {_where(limits)}"

    def _may_say(self, now_ns: int, *subject: str) -> bool:
        """Whether a line about this subject is due; if so, the caller logs it now."""
        if subject in self._said_ns:
            return False
        self._said_ns[subject] = now_ns
        return True


def _where(named: Collection[str]) -> str:
    """The parts in which a peer's configuration differs."""
    limits = [name for name in named if name != GOSSIP]
    places = [f"for the limits {', '.join(limits)}"] if limits else []
    if GOSSIP in named:
        places.append(f"in {GOSSIP} (fabric, branching or interval)")
    return " and ".join(places)
