"""The plane of messages in a daemon."""

from __future__ import annotations

from drld.daemon.running_plane import PlaneContext, RunningPlane
from drld.messages.spec import MessagesSpec
from drld.spec import LimiterSpec


def plane(context: PlaneContext, spec: LimiterSpec) -> RunningPlane | None:
    """See `drld.daemon.running_plane`; None: the daemon is in front of no broker."""
    if not spec.plane(MessagesSpec).serves:
        return None
    from drld.messages.registered.daemon.message_plane import MessagePlane

    return MessagePlane(context, spec)
