"""The log lines about peers: each change, but few about a peer that changes all the time.

A suspicion is not logged: it is refuted, or the peer is declared dead. There is at most one line in
`QUIET_NS` about each subject (a peer's state, limits, version or fabric, whether any peer answers).
It says the latest, and how many were left out. A bad link, or a sender that has the key, can make a
subject change without end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from drld.config_difference import differences
from drld.engine import Engine
from drld.event_throttle import EventThrottle, Passed
from drld.gossip.fabrics import FABRICS
from drld.gossip.health.config_digest import ConfigDigest
from drld.gossip.health.probes import Probes
from drld.gossip.wire.control_codec import State
from drld.gossip.wire.message import VERSION
from drld.log_event import event, with_left_out
from drld.model import NS_PER_S

QUIET_NS = 10 * NS_PER_S
ACQUAINTANCE_NS = 10 * NS_PER_S
"""A running peer is heard within this time: handshakes are repeated for some seconds."""
_LEAST_REFUSED = 10
"""Fewer refused datagrams may be left over from a restart."""
_NOTHING: Mapping[str, int] = MappingProxyType({})
_OF_KEYS = ("key", "tag")
"""Reasons to refuse a datagram whose sender has another key."""

_FABRICS = {fabric.kind: name for name, fabric in FABRICS.items()}
_PRESENT = (State.ALIVE, State.SUSPECT)
_GONE = {State.DEAD: "is dead: no limiter hears from it", State.LEFT: "has left"}


class Notice(NamedTuple):
    """A line of the log."""

    text: str
    event: Mapping[str, Any]
    """The line as an event (drld.log_event)."""


class PeerLog:
    """Remembers what was seen of the peers."""

    def __init__(self, rejected: Mapping[str, int] = _NOTHING) -> None:
        """`rejected` counts the refused datagrams of the gossip socket, by reason."""
        self._rejected = rejected
        self._gone: dict[str, State] = {}
        self._disagreeing: dict[str, list[str]] = {}
        self._versions: dict[str, int] = {}
        """Other wire versions that were seen, by peer."""
        self._fabrics: dict[str, str] = {}
        """Other fabrics that were seen, by peer."""
        self._isolated = False
        self._began_ns: int | None = None
        """Time of the first look, ns."""
        self._keys_judged = False
        """Whether a peer was heard, or the line about keys is logged."""
        self._throttle: EventThrottle[Notice] = EventThrottle(1, QUIET_NS)
        self._config_digest: ConfigDigest | None = None
        """The digest in force. A reload replaces it, and limits are compared from scratch."""

    def lines(self, engine: Engine, now_ns: int) -> Iterator[Notice]:
        """The lines to log since the last call."""
        for notice in self._changes(engine, now_ns):
            key = (notice.event["event"], notice.event["subject"])
            yield from map(_summed, self._throttle.admit(key, notice, now_ns))
        yield from map(_summed, self._throttle.due(now_ns))

    def rest(self) -> Iterator[Notice]:
        """The sums of the lines that were left out, when the daemon stops."""
        return map(_summed, self._throttle.rest())

    def _changes(self, engine: Engine, now_ns: int) -> Iterator[Notice]:
        yield from self._other_versions(engine)
        yield from self._other_fabrics(engine)
        yield from self._other_keys(engine, now_ns)
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
            self._throttle.forget(lambda key: key[1] not in peers and key[1] != "")
        yield from self._verdicts(engine, probes)
        if probes.isolated(now_ns) is not self._isolated:
            self._isolated = not self._isolated
            yield Notice(
                "no peer answers this limiter: check its network and key"
                if self._isolated
                else "peers answer again",
                event("fleet.isolated", old=not self._isolated, new=self._isolated),
            )
        yield from self._disagreements(engine, probes.config_digest)

    def _other_versions(self, engine: Engine) -> Iterator[Notice]:
        """Name peers of another wire version, but none that answers probes: any host can forge its
        datagrams."""
        probes = engine.node.probes
        found = {
            peer: version
            for peer, version in engine.node.transport.other_versions.items()
            if probes is None or probes.peer_states.state(peer) not in _PRESENT
        }
        self._versions = {peer: it for peer, it in self._versions.items() if peer in found}
        for peer, version in found.items():
            if self._versions.get(peer) != version:
                self._versions[peer] = version
                yield Notice(
                    f"peer {peer} speaks wire version {version}, this limiter {VERSION}: "
                    "run the same version of drld on both",
                    event("peer.version", peer, peer=peer, old=VERSION, new=version),
                )

    def _other_fabrics(self, engine: Engine) -> Iterator[Notice]:
        refused = engine.node.transport.refused_kinds.items()
        found = {peer: _FABRICS[kind] for peer, (kind, reason) in refused if reason == "fabric"}
        own = engine.spec.gossip.fabric
        for peer, fabric in found.items():
            if self._fabrics.get(peer) != fabric:
                yield Notice(
                    f"peer {peer} uses the fabric {fabric}, this limiter {own}, so neither hears "
                    "the other: write the same gossip.fabric in all files",
                    event("peer.fabric", peer, peer=peer, old=own, new=fabric),
                )
        self._fabrics = found

    def _other_keys(self, engine: Engine, now_ns: int) -> Iterator[Notice]:
        """Say once that this limiter hears no peer, because it refuses what they send."""
        if self._began_ns is None:
            self._began_ns = now_ns
        if self._keys_judged or now_ns - self._began_ns < ACQUAINTANCE_NS:
            return
        membership = engine.membership
        if membership.connected(now_ns) or membership.unnamed:
            self._keys_judged = True
            return
        refused = sum(self._rejected.get(reason, 0) for reason in _OF_KEYS)
        if refused >= _LEAST_REFUSED:
            self._keys_judged = True
            yield Notice(
                f"no peer is heard, and {refused} datagrams were refused: the keys or the names "
                "differ: compare drlctl keys list on all hosts",
                event("fleet.keys", refused=refused),
            )

    def _verdicts(self, engine: Engine, probes: Probes) -> Iterator[Notice]:
        if not engine.node.judged:
            return
        judged = engine.node.judged & {peer.name for peer in engine.spec.peers}
        engine.node.judged.clear()
        for peer in sorted(judged):
            old, state = self._gone.get(peer), probes.peer_states.state(peer)
            if state in _GONE and state is not old:
                self._gone[peer] = state
                yield Notice(f"peer {peer} {_GONE[state]}", _state(peer, old, state))
            elif state is State.ALIVE and old is not None:
                del self._gone[peer]
                yield Notice(f"peer {peer} is back", _state(peer, old, state))

    def _disagreements(self, engine: Engine, config_digest: ConfigDigest) -> Iterator[Notice]:
        # A change of the whole fleet's limits reaches one limiter after the other. Only a
        # difference that lasts until its limits are found is logged.
        found = {peer: limits for peer, limits in engine.disagreements().items() if limits}
        if found == self._disagreeing:
            return
        for peer in sorted(found.keys() | self._disagreeing.keys()):
            limits = found.get(peer)
            if limits is None and not config_digest.agrees(peer):
                continue  # It has told nothing since the reload.
            before = self._disagreeing.get(peer)
            if limits == before:
                continue
            told = event("peer.configuration", peer, peer=peer, old=before or [], new=limits or [])
            if limits is None:
                del self._disagreeing[peer]
                yield Notice(f"peer {peer} has the same configuration again", told)
            else:
                self._disagreeing[peer] = limits
                differs = f"peer {peer} has a different configuration: {differences(limits)}"
                yield Notice(differs, told)


def _summed(passed: Passed[Notice]) -> Notice:
    """A line that states how many were left out before it."""
    return passed.item._replace(text=with_left_out(passed.item.text, passed.left_out))


def _state(peer: str, old: State | None, new: State) -> Mapping[str, Any]:
    before = (old or State.ALIVE).name.lower()
    return event("peer.state", peer, peer=peer, old=before, new=new.name.lower())
