"""Remarks on a valid configuration that could be better: for the log, and for `drld --check`."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

from drld.config.problems import some
from drld.model import NS_PER_S
from drld.planes import registered
from drld.policy import Policy
from drld.spec import LimiterSpec, format_endpoint
from drld.units import format_duration

LONGEST_TUNED_NS = NS_PER_S
"""The longest estimate interval for which the allocators' time constants hold."""


def remarks(spec: LimiterSpec) -> list[str]:
    """A line for each remark on a configuration, the registry's part included."""
    of_planes = [line for plane in registered("remarks") for line in plane.remarks(spec)]
    return [*_open(spec), *_plain(spec), *_ignored(spec), *of_planes, *_long(spec), *_slow(spec)]


def _policies(spec: LimiterSpec) -> list[Policy]:
    return [limit.policy for limit in spec.limits]


def _open(spec: LimiterSpec) -> list[str]:
    if not (spec.ring.keys and spec.ring.accept_unauthenticated):
        return []
    return [
        "gossip.accept_unauthenticated: datagrams without a key are accepted: use this only while "
        "introducing keys (docs/security.md)"
    ]


def _plain(spec: LimiterSpec) -> list[str]:
    if spec.http is None or spec.http.tls:
        return []
    plain = [it for it in spec.http.listen if not ip_address(it[0]).is_loopback]
    return [
        f"http.listen: {format_endpoint(*it)}: figures are sent without TLS: set http.certificate, "
        "or listen on a loopback address"
        for it in plain
    ]


def _ignored(spec: LimiterSpec) -> list[str]:
    return ignored("weights", [limit for limit in _policies(spec) if limit.weights])


def ignored(key: str, limits: Iterable[Policy]) -> list[str]:
    """A line about limits whose allocator does not carry out their key, if there are any."""
    names = [limit.name for limit in limits if limit.allocator != "fair"]
    if not names:
        return []
    return [
        f'limit.{key}: ignored, as only the allocator "fair" carries it out: {some(names)} '
        "(docs/configuration.md)"
    ]


def _long(spec: LimiterSpec) -> list[str]:
    long = [limit for limit in _policies(spec) if limit.interval_ns > LONGEST_TUNED_NS]
    if not long:
        return []
    names = some([f"{limit.name} ({format_duration(limit.interval_ns)})" for limit in long])
    return [
        f"limit.interval: above {format_duration(LONGEST_TUNED_NS)}: {names}: the time constants "
        "of the allocators hold for intervals from 10ms to 1s (docs/operations.md)"
    ]


def _slow(spec: LimiterSpec) -> list[str]:
    round_ns = spec.gossip.interval_ns
    slow = [limit for limit in _policies(spec) if limit.interval_ns > round_ns]
    if not slow or len(spec.members) == 1:
        return []
    names = some([f"{limit.name} ({format_duration(limit.interval_ns)})" for limit in slow])
    return [
        f"limit.interval: longer than gossip.interval, {format_duration(round_ns)}: {names}: these "
        "limits follow changes of demand only once per interval"
    ]
