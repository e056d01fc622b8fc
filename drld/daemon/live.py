"""What the page shows of an engine: some limits, and the peers' health.

All of it is made when a page asks. A limiter that nobody looks at does nothing for the page.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from heapq import nsmallest

from drld.control.schema import LiveLimit, PeerHealth, Told
from drld.daemon.report import limit_report, shared_value, verdict
from drld.engine import Engine
from drld.managed_limit import ManagedLimit
from drld.model import NS_PER_S
from drld.spec import LimitSpec, format_endpoint

MOST_PEERS = 100
"""Peers that are listed; the status counts all."""
_ILL = ("dead", "suspect", "left", "unknown", "alive")


def live_limits(
    engine: Engine, now_ns: int, unsaved: Mapping[int, list[str]], ids: Collection[int]
) -> list[LiveLimit]:
    """The limits of these ids that exist, in the configuration's order."""
    return [
        _live(limit, managed, now_ns, unsaved.get(limit.id, []))
        for limit in engine.spec.limits
        if limit.id in ids and (managed := engine.limits.get(limit.id)) is not None
    ]


def _live(limit: LimitSpec, managed: ManagedLimit, now_ns: int, unsaved: list[str]) -> LiveLimit:
    limiter, tick = managed.limiter, managed.last
    told = limiter.fabric.told(now_ns) if tick else {}
    quiescent = limiter.at_rest and not managed.pending
    return LiveLimit(
        **limit_report(limit, managed, now_ns, unsaved),
        counted_age_s=0.0 if quiescent or not tick else (now_ns - managed.ticked_ns) / NS_PER_S,
        told=[
            Told(peer=peer, value=shared_value(value, tick), limiters=members)
            for peer, (value, members) in sorted(told.items())
            if tick is not None
        ],
    )


def health(engine: Engine, now_ns: int) -> list[PeerHealth]:
    """The first `MOST_PEERS` peers: those that are not well, then in the configuration's order."""
    membership = engine.membership
    connected = membership.connected(now_ns)
    listed = nsmallest(
        MOST_PEERS,
        (
            (_ILL.index(verdict(engine, peer.name)), peer.name in connected, place, peer)
            for place, peer in enumerate(engine.spec.peers)
        ),
        key=lambda it: it[:3],
    )
    return [
        PeerHealth(
            name=peer.name,
            address=format_endpoint(*peer.address),
            connected=connected_now,
            verdict=verdict(engine, peer.name),
            age_s=None if heard_ns is None else (now_ns - heard_ns) / NS_PER_S,
        )
        for _, connected_now, _, peer in listed
        for heard_ns in [membership.heard_ns(peer.name)]
    ]
