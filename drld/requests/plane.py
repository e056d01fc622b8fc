"""The plane of requests."""

from __future__ import annotations

from drld.planes.plane import Plane
from drld.requests.datapath import RequestDatapath
from drld.requests.spec import RequestMatch


def requests(datapath: RequestDatapath) -> Plane:
    """Return the plane with the limits on requests; it has no messages of its own."""
    return Plane(RequestMatch, datapath)
