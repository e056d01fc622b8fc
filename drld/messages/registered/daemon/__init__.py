"""The plane of messages in a daemon."""

from __future__ import annotations

from drld.daemon.running_plane import PlaneContext, RunningPlane
from drld.messages.registered.daemon.message_plane import MessagePlane
from drld.spec import LimiterSpec


def plane(context: PlaneContext, spec: LimiterSpec) -> RunningPlane:
    """See `drld.daemon.running_plane`; a reload may add the first broker."""
    return MessagePlane(context, spec)
