"""GET /metrics: the daemon's figures as Prometheus names them.

Units are Prometheus' base units: bytes, seconds, bytes per second. Names of figures of a limit that
counts another unit have that unit's name in place of bytes. Labels name limits, peers and
reasons, which the configuration and the code bound; what traffic contains never becomes a label.
A plane adds its own figures (drld.planes).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import cast

from starlette.routing import Route

from drld.control.backend import Backend
from drld.control.exposition import Exposition, Family, Sample, counter, gauge
from drld.control.schema.limits import LimitReport
from drld.control.schema.peers import PeerReport
from drld.control.schema.status import GossipReport, StatusReport
from drld.control.turns import Turns
from drld.planes import registered
from drld.units import BYTES

_INFO = gauge("info", "1; the labels say which limiter this is, and what it runs.")
_READY = gauge("ready", "1 if the daemon enforces its limits.")
_UPTIME = gauge("uptime_seconds", "Time since the daemon started.")
_TICKS = counter("ticks", "Ticks run.")
_LATE = counter("ticks_late", "Ticks that began more than half a round late.")
_LOADED = gauge("config_loaded_timestamp_seconds", "When the configuration in force was read.")
_REFUSED = gauge("config_reload_refused", "1 if the last reload was refused.")
_EXPIRES = gauge(
    "http_certificate_expiry_timestamp_seconds", "When the certificate of [http] expires."
)
_REGISTRY = gauge("registry_connected", "1 if an etcd server is followed and written to.")
_NOT_IN_FORCE = gauge("registry_values_refused", "Values of the registry not in force here.")
_PEERS = gauge("peers", "Peers that the configuration or the registry names.")
_CONNECTED_PEERS = gauge("peers_connected", "Peers whose shares are in the limit in force.")
_VERDICTS = gauge("peers_by_verdict", "Peers, by what probes found.")
_ISOLATED = gauge("isolated", "1 if no peer answers this limiter's probes.")
_DISAGREEING = gauge("peers_disagreeing", "Peers whose shared settings differ from these.")
_DATAPATH = counter("datapath_events", "What the datapath counted, by name.")
_REJECTED = counter("gossip_rejected", "Datagrams and updates refused, by reason.")
_ERRORS = counter("gossip_errors", "Socket errors, by the name of the error.")
_GOSSIP: dict[str, Family] = {
    "sent": counter("gossip_updates_sent", "Updates sent."),
    "received": counter("gossip_updates_received", "Updates received."),
    "bytes_sent": counter("gossip_sent_bytes", "Bytes of IP packets sent."),
    "control_sent": counter("gossip_control_sent", "Probes and answers sent."),
    "control_received": counter("gossip_control_received", "Probes and answers received."),
    "handshakes": counter("gossip_handshakes", "HELLOs sent."),
    "sessions": counter("gossip_sessions", "Sessions completed with peers."),
    "floods": counter("gossip_floods", "Ticks that refused too many datagrams to read the rest."),
}
_OF_LIMITS: dict[str, Family] = {
    "rate_bps": gauge("limit_rate_bytes_per_second", "The global limit."),
    "burst_bytes": gauge("limit_burst_bytes", "Burst of the global limit."),
    "limit_in_force_bps": gauge(
        "limit_in_force_bytes_per_second", "The limit less the shares of the missing."
    ),
    "local_limit_bps": gauge(
        "limit_local_bytes_per_second", "What this limiter may forward of the limit."
    ),
    "demand_bps": gauge("limit_demand_bytes_per_second", "What this limiter's traffic wants."),
    "drop_probability": gauge("limit_drop_probability", "Part that is dropped at random, 0 to 1."),
    "flows": gauge("limit_flows_sampled", "Flows in the sample."),
    "arrived_bytes": counter("limit_arrived_bytes", "Bytes that arrived."),
    "arrived_packets": counter("limit_arrived_packets", "Packets that arrived."),
    "forwarded_bytes": counter("limit_forwarded_bytes", "Bytes forwarded."),
    "forwarded_packets": counter("limit_forwarded_packets", "Packets forwarded."),
    "marked_bytes": counter("limit_marked_bytes", "Bytes forwarded with a mark (ECN)."),
    "marked_packets": counter("limit_marked_packets", "Packets forwarded with a mark (ECN)."),
    "dropped_bytes": counter(
        "limit_dropped_bytes", "Bytes dropped; in shadow mode those above the limit."
    ),
    "dropped_packets": counter(
        "limit_dropped_packets", "Packets dropped; in shadow mode those above the limit."
    ),
}
_LIMIT_INFO = gauge("limit_info", "1; the labels say how the limit is configured.")
_OF_PEERS: dict[str, Family] = {
    "connected": gauge("peer_connected", "1 if the peer's share is in the limit in force."),
    "age_s": gauge("peer_last_update_age_seconds", "Time since the peer's last update."),
    "received": counter("peer_updates_received", "Updates accepted from the peer."),
    "lost": counter("peer_updates_lost", "Updates of the peer that were lost."),
    "late": counter("peer_updates_late", "Updates of the peer that came too late."),
    "rejected": counter("peer_updates_rejected", "Updates of the peer of another allocator."),
}


def of_status(report: StatusReport) -> Iterator[Sample]:
    """The samples of the daemon as a whole."""
    labels = {
        "limiter": report["name"],
        "version": report["version"],
        "datapath": report["datapath"]["name"],
        "fabric": report["fabric"]["name"],
    }
    yield Sample(_INFO, 1, tuple(labels.items()))
    yield Sample(_READY, report["ready"])
    yield Sample(_UPTIME, report["uptime_s"])
    yield Sample(_TICKS, report["ticks"]["run"])
    yield Sample(_LATE, report["ticks"]["late"])
    yield Sample(_LOADED, report["config"]["loaded_at"])
    yield Sample(_REFUSED, report["config"]["reload_error"] is not None)
    yield Sample(_EXPIRES, report["config"]["certificate_expires_at"])
    if (registry := report["registry"]) is not None:
        yield Sample(_REGISTRY, registry["state"] == "connected")
        yield Sample(_NOT_IN_FORCE, registry["problem_count"])
    yield Sample(_PEERS, report["peers"]["configured"])
    yield Sample(_CONNECTED_PEERS, report["peers"]["connected"])
    if (probes := report["probes"]) is not None:
        for verdict in ("alive", "suspect", "dead", "left", "unknown"):
            yield Sample(_VERDICTS, probes[verdict], (("verdict", verdict),))
        yield Sample(_ISOLATED, probes["isolated"])
        yield Sample(_DISAGREEING, len(probes["disagreeing"]))
    for name, count in report["datapath"]["counters"].items():
        yield Sample(_DATAPATH, count, (("event", name),))
    yield from _of_gossip(report["gossip"])


def _of_gossip(report: GossipReport) -> Iterator[Sample]:
    yield from _of_keys(report, _GOSSIP)
    for reason, count in report["rejected"].items():
        yield Sample(_REJECTED, count, (("reason", reason),))
    for error, count in report["errors"].items():
        yield Sample(_ERRORS, count, (("error", error),))


def of_limit(report: LimitReport) -> Iterator[Sample]:
    """The samples of one limit."""
    label = ("limit", report["name"])
    configured = ("allocator", report["allocator"]), ("mode", report["mode"])
    yield Sample(_LIMIT_INFO, 1, (label, *configured))
    yield from _of_keys(report, _families(report["unit"], report["items"]), label)


@cache
def _families(unit: str, items: str) -> Mapping[str, Family]:
    """The families of limits that count this unit, and so many of these items."""
    return {
        key: Family(
            family.name.replace("bytes", unit).replace("packets", items),
            family.kind,
            family.help.replace("Bytes", unit.title()).replace("Packets", items.title()),
        )
        for key, family in _OF_LIMITS.items()
        if unit != items or not key.endswith("_packets")
    }


def of_peer(report: PeerReport) -> Iterator[Sample]:
    """The samples of one peer."""
    yield from _of_keys(report, _OF_PEERS, ("peer", report["name"]))


def _of_keys(
    report: Mapping[str, object], families: Mapping[str, Family], *labels: tuple[str, str]
) -> Iterator[Sample]:
    """A sample of each key that has a family; bits/s become bytes/s."""
    for key, family in families.items():
        value = cast("float | None", report[key])
        if value is not None and key.endswith("_bps") and report["unit"] == BYTES.name:
            value /= 8
        yield Sample(family, value, labels)


def samples(backend: Backend) -> Iterator[Sample]:
    """All samples: of the daemon, its limits, its peers and its planes."""
    yield from of_status(backend.status())
    for limit in backend.limits():
        yield from of_limit(limit)
    for peer in backend.peers():
        yield from of_peer(peer)
    for plane in registered("metrics"):
        yield from plane.samples(backend)


def metrics_routes(backend: Backend, turns: Turns) -> list[Route]:
    """The path of the metrics."""
    return [Route("/metrics", Exposition(partial(samples, backend), turns), methods=["GET"])]
