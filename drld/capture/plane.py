"""The plane of packets."""

from __future__ import annotations

from drld.capture.spec import Match
from drld.planes.plane import Plane
from drld.police.datapath import Datapath


def packets(datapath: Datapath) -> Plane:
    """The limits on packets, policed on one of the datapaths; it has no messages of its own."""
    return Plane(Match, datapath)
