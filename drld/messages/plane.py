"""The plane of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drld.messages.spec import MessageMatch
from drld.planes.plane import Plane

if TYPE_CHECKING:
    from drld.messages.datapath import MessageDatapath


def messages(datapath: MessageDatapath) -> Plane:
    """The limits on messages; they have no messages of their own among limiters."""
    return Plane(MessageMatch, datapath)
