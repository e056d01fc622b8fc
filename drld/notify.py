"""systemd's readiness protocol (sd_notify(3)): one datagram to $NOTIFY_SOCKET, or nothing."""

from __future__ import annotations

import contextlib
import os
import socket


def notify(state: str) -> None:
    """Tell the service manager, if there is one: `READY=1`, `RELOADING=1`, `STOPPING=1`, ..."""
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    # A manager that is gone is no reason to stop policing.
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager,
    ):
        manager.sendto(state.encode(), address)
