"""The page's view of an engine: some limits, and the health of the peers.

Each request of the page makes these reports. Without requests they cost nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from heapq import nsmallest

from drld.control.schema.live import LiveLimit, MeasuredRate, PeerHealth, Told
from drld.daemon.fleet_report import verdict
from drld.daemon.limit_report import limit_report, shared_value
from drld.engine import Engine
from drld.fleet_rates import FleetRates, Rate
from drld.managed_limit import ManagedLimit
from drld.model import NS_PER_S
from drld.spec import LimitSpec, format_endpoint
from drld.units import Unit

MOST_PEERS = 100
"""Peers that are listed; the status counts all."""
MOST_RATES = 20
"""Peers with rates of their own in the list: more than a page can show apart."""
_ILL = ("dead", "suspect", "left", "unknown", "alive")


def live_limits(
    engine: Engine,
    rates: FleetRates,
    now_ns: int,
    unsaved: Mapping[int, list[str]],
    ids: Collection[int],
) -> list[LiveLimit]:
    """The limits of these ids that exist, in the configuration's order."""
    return [
        _live(limit, managed, rates, now_ns, unsaved.get(limit.id, []))
        for limit in engine.spec.limits
        if limit.id in ids and (managed := engine.limits.get(limit.id)) is not None
    ]


def look(engine: Engine, rates: FleetRates, limit_id: int, now_ns: int) -> None:
    """Note that a page shows this limit, and ask for its rates."""
    rates.watch(limit_id, [peer.name for peer in engine.spec.peers], now_ns)


def _live(
    limit: LimitSpec,
    managed: ManagedLimit,
    rates: FleetRates,
    now_ns: int,
    unsaved: list[str],
) -> LiveLimit:
    limiter, tick = managed.limiter, managed.last
    told = limiter.fabric.told(now_ns) if tick else {}
    quiescent = limiter.quiescent and not managed.pending
    return LiveLimit(
        **limit_report(limit, managed, now_ns, unsaved),
        counted_age_s=0.0 if quiescent or not tick else (now_ns - managed.ticked_ns) / NS_PER_S,
        told=[
            Told(peer=peer, value=shared_value(value, tick), limiters=members)
            for peer, (value, members) in sorted(told.items())
            if tick is not None
        ],
        measured=_measured(rates.rates(limit.id), limit.policy.unit),
    )


def _measured(rates: list[Rate], unit: Unit) -> list[MeasuredRate]:
    """The largest rates, and the sum of the others under no name."""
    rates.sort(key=lambda rate: -rate.forwarded)
    named, others = rates[:MOST_RATES], rates[MOST_RATES:]
    parts = [(rate.peer, [rate]) for rate in named] + ([("", others)] if others else [])
    return [
        MeasuredRate(
            peer=peer,
            limiters=len(part),
            forwarded_bps=unit.shown_rate(sum(rate.forwarded for rate in part)),
            dropped_bps=unit.shown_rate(sum(rate.dropped for rate in part)),
        )
        for peer, part in parts
    ]


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
