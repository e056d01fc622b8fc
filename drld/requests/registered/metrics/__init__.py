"""Figures of requests for `GET /metrics`."""

from __future__ import annotations

from collections.abc import Iterator

from drld.control.backend import Backend
from drld.control.exposition import Sample, gauge
from drld.requests.spec import RequestsSpec

_EXPIRES = gauge(
    "requests_certificate_expiry_timestamp_seconds", "When that of [requests] expires."
)


def samples(backend: Backend) -> Iterator[Sample]:
    """When the certificate expires, if there is one."""
    tls = backend.plane_spec(RequestsSpec).tls
    yield Sample(_EXPIRES, tls.expires if tls else None)
