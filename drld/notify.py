"""systemd's readiness protocol (sd_notify(3)): one datagram to $NOTIFY_SOCKET, or nothing.

And its watchdog (sd_watchdog_enabled(3)): a daemon that systemd has not heard from for WatchdogSec
of its unit is killed and started again.
"""

from __future__ import annotations

import contextlib
import os
import socket

_NS_PER_US = 1000


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


class Watchdog:
    """Tells the service manager that the daemon lives, four times in the time that it waits."""

    def __init__(self) -> None:
        """Ask the environment whether anybody waits."""
        wanted = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        period_us = os.environ.get("WATCHDOG_USEC", "") if wanted else ""
        self._interval_ns = int(period_us) * _NS_PER_US // 4 if period_us.isdecimal() else 0
        self._due_ns = 0

    def alive(self, now_ns: int) -> None:
        """Call this whenever the daemon has done what it is there for."""
        if self._interval_ns and now_ns >= self._due_ns:
            self._due_ns = now_ns + self._interval_ns
            notify("WATCHDOG=1")
