"""The choice of the source of messages' arrival times: `timestamps` of a broker."""

from __future__ import annotations

import logging
import socket
from typing import Protocol

from drld.errors import DatapathError
from drld.log_event import event
from drld.messages.front.coarse_stamps import KERNEL, READ, KernelStamps, ReadStamps
from drld.messages.front.stamps import SOCKET, SocketStamps
from drld.messages.segments import Segments, Tally

log = logging.getLogger(__name__)

AUTO = "auto"
SOURCES = (AUTO, SOCKET, KERNEL, READ)
"""The sources, from the best to the worst."""


class Stamps(Protocol):
    """A source of arrival times, for any number of listening sockets."""

    source: str
    """`socket`, `kernel` or `read`."""
    tally: Tally

    @property
    def reason(self) -> str:
        """A phrase for an operator: the time at which messages are charged, and the reason."""

    @property
    def lost(self) -> int:
        """The number of segments whose times were lost."""

    def watch(self, listener: socket.socket) -> None:
        """Find the times of connections that come to a listening socket from now on.

        Raises:
            DatapathError: the kernel refuses.
        """

    def unwatch(self, listener: socket.socket) -> None:
        """Restore a listening socket, because another process may go on to use it."""

    def of(self, connection: socket.socket) -> Segments:
        """The arrival times of a connection that has just been accepted, until `close`."""

    def receive(
        self, connection: socket.socket, segments: Segments, buffer: bytearray | memoryview
    ) -> int:
        """Read from a connection, like `socket.recv_into`."""

    def drain(self) -> None:
        """Take in the times that the source has found: at the start of each turn."""

    def close(self, connection: socket.socket) -> None:
        """Forget a connection that is about to be closed."""

    def stop(self) -> None:
        """Close the kernel's objects that the source uses."""


def stamps(wanted: str) -> Stamps:
    """Make the source that an operator wants (`SOURCES`); `auto` is the best that works.

    Raises:
        DatapathError: the wanted source does not work.
    """
    refusal = ""
    for source in SOURCES[1:-1]:
        if wanted not in (AUTO, source):
            continue
        try:
            return SocketStamps() if source == SOCKET else KernelStamps(refusal)
        except DatapathError as error:
            if wanted != AUTO:
                raise
            refusal += f" (no {source} timestamps: {error})"
            log.warning(
                "messages get no %s timestamps: %s",
                *(source, error),
                extra=event("timestamps.fallback", reason=str(error)),
            )
    return ReadStamps(refusal)
