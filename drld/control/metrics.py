"""GET /metrics: the daemon's figures in the text format of Prometheus, version 0.0.4.

Units are Prometheus' base units: bytes, seconds, bytes per second. Names of figures of a limit that
counts another unit have that unit's name in place of bytes. Labels name limits, peers and
reasons, which the configuration and the code bound; what traffic contains never becomes a label.
The format is written by hand: 10,000 limits have 160,000 samples, and prometheus-client makes them
all without a pause, which would keep ticks waiting. Here they are made a few limits at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple, cast

import trio
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from drld.control.backend import Backend
from drld.control.pieces import begin, proceed
from drld.control.schema import GossipReport, LimitReport, PeerReport, StatusReport
from drld.control.turns import Turns
from drld.units import BYTES

MEDIA_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_BATCH_S = 0.002
"""How long samples are made before other tasks get their turn."""


class Family(NamedTuple):
    """Samples of one name."""

    name: str
    """Without the prefix `drld_`."""
    kind: str
    """`counter` (the name ends in `_total`) or `gauge`."""
    help: str


class Sample(NamedTuple):
    """One value; None is left out."""

    family: Family
    value: float | None
    labels: tuple[tuple[str, str], ...] = ()


def _counter(name: str, text: str) -> Family:
    return Family(f"{name}_total", "counter", text)


def _gauge(name: str, text: str) -> Family:
    return Family(name, "gauge", text)


_INFO = _gauge("info", "1; the labels say which limiter this is, and what it runs.")
_READY = _gauge("ready", "1 if the daemon enforces its limits.")
_UPTIME = _gauge("uptime_seconds", "Time since the daemon started.")
_LOADED = _gauge("config_loaded_timestamp_seconds", "When the configuration in force was read.")
_REFUSED = _gauge("config_reload_refused", "1 if the last reload was refused.")
_PEERS = _gauge("peers", "Peers that the configuration or the registry names.")
_CONNECTED_PEERS = _gauge("peers_connected", "Peers whose shares are in the limit in force.")
_VERDICTS = _gauge("peers_by_verdict", "Peers, by what probes found.")
_ISOLATED = _gauge("isolated", "1 if no peer answers this limiter's probes.")
_DISAGREEING = _gauge("peers_disagreeing", "Peers whose shared settings differ from these.")
_DATAPATH = _counter("datapath_events", "What the datapath counted, by name.")
_REJECTED = _counter("gossip_rejected", "Datagrams and updates refused, by reason.")
_ERRORS = _counter("gossip_errors", "Socket errors, by the name of the error.")
_GOSSIP: dict[str, Family] = {
    "sent": _counter("gossip_updates_sent", "Updates sent."),
    "received": _counter("gossip_updates_received", "Updates received."),
    "bytes_sent": _counter("gossip_sent_bytes", "Bytes of IP packets sent."),
    "control_sent": _counter("gossip_control_sent", "Probes and answers sent."),
    "control_received": _counter("gossip_control_received", "Probes and answers received."),
    "handshakes": _counter("gossip_handshakes", "HELLOs sent."),
    "sessions": _counter("gossip_sessions", "Sessions completed with peers."),
    "floods": _counter("gossip_floods", "Ticks that refused too many datagrams to read the rest."),
}
_OF_LIMITS: dict[str, Family] = {
    "rate_bps": _gauge("limit_rate_bytes_per_second", "The global limit."),
    "burst_bytes": _gauge("limit_burst_bytes", "Burst of the global limit."),
    "limit_in_force_bps": _gauge(
        "limit_in_force_bytes_per_second", "The limit less the shares of the missing."
    ),
    "local_limit_bps": _gauge(
        "limit_local_bytes_per_second", "What this limiter may forward of the limit."
    ),
    "demand_bps": _gauge("limit_demand_bytes_per_second", "What this limiter's traffic wants."),
    "drop_probability": _gauge("limit_drop_probability", "Part that is dropped at random, 0 to 1."),
    "flows": _gauge("limit_flows_sampled", "Flows in the sample."),
    "arrived_bytes": _counter("limit_arrived_bytes", "Bytes that arrived."),
    "arrived_packets": _counter("limit_arrived_packets", "Packets that arrived."),
    "forwarded_bytes": _counter("limit_forwarded_bytes", "Bytes forwarded."),
    "forwarded_packets": _counter("limit_forwarded_packets", "Packets forwarded."),
    "dropped_bytes": _counter(
        "limit_dropped_bytes", "Bytes dropped; in shadow mode those above the limit."
    ),
    "dropped_packets": _counter(
        "limit_dropped_packets", "Packets dropped; in shadow mode those above the limit."
    ),
}
_LIMIT_INFO = _gauge("limit_info", "1; the labels say how the limit is configured.")
_OF_PEERS: dict[str, Family] = {
    "connected": _gauge("peer_connected", "1 if the peer's share is in the limit in force."),
    "age_s": _gauge("peer_last_update_age_seconds", "Time since the peer's last update."),
    "received": _counter("peer_updates_received", "Updates accepted from the peer."),
    "lost": _counter("peer_updates_lost", "Updates of the peer that were lost."),
    "late": _counter("peer_updates_late", "Updates of the peer that came too late."),
    "rejected": _counter("peer_updates_rejected", "Updates of the peer of another allocator."),
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
    yield Sample(_LOADED, report["config"]["loaded_at"])
    yield Sample(_REFUSED, report["config"]["reload_error"] is not None)
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


def _all(backend: Backend) -> Iterator[Sample]:
    yield from of_status(backend.status())
    for limit in backend.limits():
        yield from of_limit(limit)
    for peer in backend.peers():
        yield from of_peer(peer)


def line(sample: Sample) -> str:
    """A sample as the format has it."""
    value = sample.value
    assert value is not None
    text = str(int(value)) if value == int(value) else repr(float(value))
    if not sample.labels:
        return f"drld_{sample.family.name} {text}\n"
    labels = ",".join(f'{name}="{_escaped(label)}"' for name, label in sample.labels)
    return f"drld_{sample.family.name}{{{labels}}} {text}\n"


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def headed(family: Family) -> str:
    """What comes before a family's samples."""
    name = f"drld_{family.name}"
    return f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n"


class _Metrics:
    """The application that answers GET /metrics."""

    def __init__(self, backend: Backend, turns: Turns) -> None:
        self._backend = backend
        self._turns = turns

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        families: dict[Family, list[str]] = {}
        until = trio.current_time() + _BATCH_S
        for sample in _all(self._backend):
            if sample.value is not None:
                families.setdefault(sample.family, []).append(line(sample))
            if trio.current_time() >= until:
                await self._turns.wait()
                until = trio.current_time() + _BATCH_S
        await begin(send, MEDIA_TYPE)
        for family, lines in families.items():
            await self._turns.wait()
            await proceed(send, (headed(family) + "".join(lines)).encode(), more=True)
        await proceed(send, b"", more=False)


def metrics_routes(backend: Backend, turns: Turns) -> list[Route]:
    """The path of the metrics."""
    return [Route("/metrics", _Metrics(backend, turns), methods=["GET"])]
