"""The plane of packets in a daemon."""

from __future__ import annotations

from drld.capture.registered.daemon.packet_plane import PacketPlane
from drld.capture.registered.daemon.remarks import remarks
from drld.daemon.running_plane import PlaneContext
from drld.spec import LimiterSpec

__all__ = ["plane", "remarks"]


def plane(context: PlaneContext, spec: LimiterSpec) -> PacketPlane:
    """See `drld.daemon.running_plane`: every daemon runs it, as limits may come at any time."""
    return PacketPlane(context, spec)
