"""The plane of requests."""

from __future__ import annotations

from drld.planes.plane import Plane
from drld.requests.datapath import RequestDatapath
from drld.requests.spec import RequestMatch


def requests(datapath: RequestDatapath) -> Plane:
    """The limits on requests; they have no messages of their own."""
    return Plane(RequestMatch, datapath)
