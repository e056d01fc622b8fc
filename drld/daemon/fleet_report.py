"""The control API's reports on peers, gossip and keys, in the types of drld.control.schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from drld.control.schema.keys import KeyReport, KeysReport
from drld.control.schema.peers import PeerReport, Verdict
from drld.control.schema.status import GossipReport, ProbesReport
from drld.engine import Engine
from drld.gossip.transport import Transport
from drld.gossip.wire.control_codec import State
from drld.gossip.wire.keyring import KeyRing, fingerprint
from drld.model import NS_PER_S
from drld.spec import format_endpoint

_VERDICTS: dict[State, Verdict] = {
    State.ALIVE: "alive",
    State.SUSPECT: "suspect",
    State.DEAD: "dead",
    State.LEFT: "left",
}


def peer_reports(engine: Engine, now_ns: int) -> Iterator[PeerReport]:
    """Every peer, with the sum of its heartbeats and of its links of all limits."""
    membership, former = engine.membership, dict(engine.former_links)
    connected = membership.connected(now_ns)
    fabrics = [
        fabric.links for managed in engine.limits.values() for fabric in managed.limiter.fabrics
    ]
    # At once, because a reload may remove peers before the client has read the last one.
    known = [
        (peer, verdict(engine, peer.name), membership.heard_ns(peer.name))
        for peer in engine.spec.peers
    ]
    for peer, found, heard_ns in known:
        links = [links[peer.name] for links in fabrics if peer.name in links]
        links.append(membership.heartbeats(peer.name))
        if peer.name in former:
            links.append(former[peer.name])
        yield PeerReport(
            name=peer.name,
            address=format_endpoint(*peer.address),
            connected=peer.name in connected,
            verdict=found,
            age_s=None if heard_ns is None else (now_ns - heard_ns) / NS_PER_S,
            received=sum(link.received for link in links),
            lost=sum(link.lost for link in links),
            late=sum(link.late for link in links),
            rejected=sum(link.rejected for link in links) + engine.unknown_limit[peer.name],
        )


def probes_report(engine: Engine, now_ns: int) -> ProbesReport | None:
    """The probes' findings about the fleet."""
    probes = engine.node.probes
    if probes is None:
        return None
    verdicts = {peer.name: verdict(engine, peer.name) for peer in engine.spec.peers}
    counts = Counter(verdicts.values())
    unlike = engine.disagreements().items()
    return ProbesReport(
        alive=counts["alive"],
        suspect=counts["suspect"],
        dead=counts["dead"],
        left=counts["left"],
        unknown=counts["unknown"],
        isolated=probes.isolated(now_ns),
        awareness=probes.awareness,
        # A limiter that has left enforces nothing.
        disagreeing={name: limits for name, limits in unlike if verdicts.get(name) != "left"},
    )


def verdict(engine: Engine, peer: str) -> Verdict:
    """The verdict of probes on a peer."""
    probes = engine.node.probes
    state = None if probes is None else probes.peer_states.state(peer)
    return "unknown" if state is None else _VERDICTS[state]


def gossip_report(transport: Transport) -> GossipReport:
    """Counts of the gossip socket."""
    return GossipReport(
        sent=transport.sent,
        received=transport.received,
        bytes_sent=transport.bytes_sent,
        control_sent=transport.control_sent,
        control_received=transport.control_received,
        handshakes=transport.handshakes,
        greetings=transport.greetings,
        sessions=transport.met,
        floods=transport.floods,
        rejected=dict(transport.rejected),
        errors=dict(transport.errors),
    )


def keys_report(ring: KeyRing, configured: KeyRing) -> KeysReport:
    """The keys in force, and whether they are the configured ones."""
    return KeysReport(
        use=ring.use,
        tag_bytes=ring.tag_size,
        accept_unauthenticated=ring.accept_unauthenticated,
        keys=[
            KeyReport(id=key_id, fingerprint=fingerprint(key), in_use=key_id == ring.use)
            for key_id, key in sorted(ring.keys.items())
        ],
        as_configured=ring == configured,
    )
