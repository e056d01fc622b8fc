"""The metrics of requests in `GET /metrics`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from drld.control.backend import Backend
from drld.control.exposition import Sample, counter, gauge
from drld.requests.datapath import RequestDatapath
from drld.requests.spec import RequestsSpec

_EXPIRES = gauge(
    "requests_certificate_expiry_timestamp_seconds", "When that of [requests] expires."
)
_KEYS = gauge("limit_keys", "Keys with a bucket here.")
_SHARED = counter("limit_keys_shared", "Charges to buckets of several keys, as max_keys are there.")
_UNKEPT = counter("limit_keys_unkept", "Keys of peers for which there was no room.")
_CONTACTS = gauge("deltas_peers", "Peers in contact on the socket of deltas.")
_REJECTED = counter("deltas_rejected", "Datagrams refused on the socket of deltas, by reason.")
_ERRORS = counter("deltas_errors", "Errors of the socket of deltas, by name.")
_DELTAS = {
    "control_sent": counter("deltas_sent", "Messages sent on the socket of deltas."),
    "control_received": counter("deltas_received", "Messages taken on the socket of deltas."),
    "bytes_sent": counter("deltas_sent_bytes", "Bytes of IP packets sent there."),
    "sessions": counter("deltas_sessions", "Sessions completed with peers there."),
    "floods": counter("deltas_floods", "Looks that refused too many datagrams there."),
}


def samples(backend: Backend) -> Iterator[Sample]:
    """Return the samples of the certificate's expiry, of the limits' keys, and of their socket."""
    tls = backend.plane_spec(RequestsSpec).tls
    yield Sample(_EXPIRES, tls.expires if tls else None)
    datapath = backend.datapath_of(RequestDatapath)
    if datapath is None:
        return
    for keyed in datapath.keyed.limits.values():
        label = (("limit", keyed.limit.name),)
        yield Sample(_KEYS, len(keyed.replica.buckets), label)
        yield Sample(_SHARED, keyed.replica.buckets.shared, label)
        yield Sample(_UNKEPT, keyed.replica.buckets.unkept, label)
    deltas = backend.status()["deltas"]
    if deltas is None:
        return
    yield Sample(_CONTACTS, datapath.keyed.contacts)
    for key, family in _DELTAS.items():
        yield Sample(family, cast(int, deltas[key]))  # type: ignore[literal-required]  # keys
    for reason, count in deltas["rejected"].items():
        yield Sample(_REJECTED, count, (("reason", reason),))
    for error, count in deltas["errors"].items():
        yield Sample(_ERRORS, count, (("error", error),))
