"""Remarks on limits of requests, and on the addresses of the front (`drld.config.remarks`)."""

from __future__ import annotations

from ipaddress import ip_address
from ssl import CERT_REQUIRED

from drld.config.problems import some
from drld.model import NS_PER_S
from drld.policy import Policy
from drld.requests.spec import REQUESTS, RequestMatch, RequestsSpec
from drld.spec import LimiterSpec, format_endpoint
from drld.units import human_number

FEW_LIMITERS = 10
"""The number of peers from which on it matters that each is told of every key."""


def remarks(spec: LimiterSpec) -> list[str]:
    """Return the remarks on the requests of a configuration, a line each."""
    return [
        *_open(spec),
        *_small(spec),
        *_forgetful(spec),
        *_lasting(spec),
        *_many(spec),
        *_alone(spec),
    ]


def _open(spec: LimiterSpec) -> list[str]:
    own = spec.plane(RequestsSpec)
    addresses = [it for it in own.listen if not isinstance(it, str)]
    if own.tls is not None and own.tls.context.verify_mode is CERT_REQUIRED:
        return []
    plain = ", and nothing is encrypted" if own.tls is None else ""
    return [
        f"requests.listen: {format_endpoint(*it)}: any host that reaches it may use up the limits"
        f"{plain}: let only your proxies reach it, or set requests.client_ca (docs/requests.md)"
        for it in addresses
        if not ip_address(it[0]).is_loopback
    ]


def _keyed(spec: LimiterSpec, bucket: str | None = None) -> list[tuple[Policy, float]]:
    """Return the limits with this kind of bucket for each key, and the largest rate of a key,
    items/s."""
    return [
        (it, max([it.rate, *(each.rate for each in keyed.overrides)]) / it.unit.item)
        for it in (limit.policy for limit in spec.limits)
        if (keyed := it.keyed) and bucket in (None, keyed.bucket)
    ]


def _forgetful(spec: LimiterSpec) -> list[str]:
    round_s = spec.gossip.interval_ns / NS_PER_S
    found = [it.name for it, rate in _keyed(spec, "queue") if rate * round_s >= 1]
    if not found or len(spec.members) == 1:
        return []
    return [
        f'limit.bucket: "queue" has no limit in the long run: {some(found)}: use "ledger" '
        "(docs/requests-per-user.md)"
    ]


def _lasting(spec: LimiterSpec) -> list[str]:
    found = [it.name for it, _ in _keyed(spec, "counter")]
    if not found:
        return []
    return [
        f'limit.bucket: "counter" never forgets a key: {some(found)}: use "ledger" '
        "(docs/requests-per-user.md)"
    ]


def _many(spec: LimiterSpec) -> list[str]:
    others = len(spec.members) - 1
    if others < FEW_LIMITERS or not _keyed(spec):
        return []
    rounds = NS_PER_S / spec.gossip.interval_ns
    told = {it.name: (others + 1) * others * min(rounds, rate) for it, rate in _keyed(spec)}
    found = [f"{name} ({human_number(entries)})" for name, entries in told.items()]
    return [
        "limit.match.per: entries a second, at most, for a key in use at all limiters: "
        f"{some(found)} (docs/requests-per-user.md)"
    ]


def _alone(spec: LimiterSpec) -> list[str]:
    """Return remarks on pairs that are in `where` and in `per`: they have one value in all keys."""
    found = {
        name: limit.policy.name
        for limit in spec.limits
        if isinstance(match := limit.match, RequestMatch)
        for name in match.per if name in match.where
    }  # fmt: skip
    return [
        f"limit.match: where and per name the same pair, so {name} is the same in all keys of "
        f"{limit}: leave it out of per"
        for name, limit in found.items()
    ]


def _small(spec: LimiterSpec) -> list[str]:
    limits = [limit.policy for limit in spec.limits if isinstance(limit.match, RequestMatch)]
    least = len(spec.members) * REQUESTS.item
    divided = [it for it in limits if it.keyed is None]
    small = [it.name for it in divided if it.unit == REQUESTS and it.burst < least]
    if not small or len(spec.members) == 1:
        return []
    return [
        f"limit.burst: less than one request for each limiter: {some(small)}: their parts of the "
        "burst are too small to be even (docs/requests.md)"
    ]
