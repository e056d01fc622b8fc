"""The plane of messages."""

from __future__ import annotations

from drld.messages.datapath import MessageDatapath
from drld.messages.spec import MessageMatch
from drld.plane import Plane


def messages(datapath: MessageDatapath) -> Plane:
    """The limits on messages; they have no messages of their own among limiters."""
    return Plane(MessageMatch, datapath)
