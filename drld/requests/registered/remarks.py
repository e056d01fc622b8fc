"""Remarks on limits of requests, and on where they are answered (`drld.config.remarks`)."""

from __future__ import annotations

from ipaddress import ip_address
from ssl import CERT_REQUIRED

from drld.config.problems import some
from drld.requests.spec import REQUESTS, RequestMatch, RequestsSpec
from drld.spec import LimiterSpec, format_endpoint


def remarks(spec: LimiterSpec) -> list[str]:
    """A line for each remark on what a configuration says of requests."""
    return [*_open(spec), *_small(spec)]


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


def _small(spec: LimiterSpec) -> list[str]:
    limits = [limit.policy for limit in spec.limits if isinstance(limit.match, RequestMatch)]
    least = len(spec.members) * REQUESTS.item
    small = [it.name for it in limits if it.unit == REQUESTS and it.burst < least]
    if not small or len(spec.members) == 1:
        return []
    return [
        f"limit.burst: less than one request for each limiter: {some(small)}: their parts of the "
        "burst are too small to be even (docs/requests.md)"
    ]
