"""Health (grpc.health.v1): whether this limiter answers.

`Watch` answers that it does. It answers that it does not when the connection ends: because the
limiter stops, or because the client has sent no other call for long.
"""

from __future__ import annotations

from drld.requests.grpc.call import CallError, Origin, Status
from drld.requests.grpc.reflection import service_names
from drld.requests.grpc.schema import HEALTH_REQUEST, HEALTH_RESPONSE, SERVING_STATUS


def _response(status: str) -> bytes:
    return HEALTH_RESPONSE.encode({"status": SERVING_STATUS.values[status]})


NOT_SERVING = _response("NOT_SERVING")
"""The last message of a `Watch`."""


def check(data: bytes, _: Origin) -> bytes:
    """Answer that the named service, or the whole server, serves."""
    name = HEALTH_REQUEST.decode(data).get("service", "")
    if name and name not in service_names():
        raise CallError(Status.NOT_FOUND, "there is no such service")
    return _response("SERVING")


def watch(data: bytes, _: Origin) -> bytes:
    """Answer the same; an unknown service is no error, because it may come."""
    name = HEALTH_REQUEST.decode(data).get("service", "")
    return _response("SERVING" if not name or name in service_names() else "SERVICE_UNKNOWN")
