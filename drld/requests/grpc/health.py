"""Health (grpc.health.v1): whether this limiter answers.

There is no `Watch`: clients that find it missing take a limiter for healthy whose connection lives
(https://grpc.io/docs/guides/health-checking), and a limiter that stops says so by GOAWAY.
"""

from __future__ import annotations

from drld.requests.grpc.call import CallError, Origin, Status
from drld.requests.grpc.reflection import service_names
from drld.requests.grpc.schema import HEALTH_REQUEST, HEALTH_RESPONSE, SERVING_STATUS


def check(data: bytes, _: Origin) -> bytes:
    """Say that the service asked for, or the whole server, serves."""
    name = HEALTH_REQUEST.decode(data).get("service", "")
    if name and name not in service_names():
        raise CallError(Status.NOT_FOUND, "there is no such service")
    return HEALTH_RESPONSE.encode({"status": SERVING_STATUS.values["SERVING"]})
