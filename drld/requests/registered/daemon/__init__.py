"""The plane of requests in a daemon."""

from __future__ import annotations

from drld.daemon.running_plane import PlaneContext, RunningPlane
from drld.requests.spec import RequestsSpec
from drld.spec import LimiterSpec


def plane(context: PlaneContext, spec: LimiterSpec) -> RunningPlane | None:
    """See `drld.daemon.running_plane`; None: the daemon answers no requests."""
    if not spec.plane(RequestsSpec).serves:
        return None
    from drld.requests.registered.daemon.request_plane import RequestPlane

    return RequestPlane(context, spec)
