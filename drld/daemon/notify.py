"""systemd's readiness protocol (sd_notify(3)): one datagram to $NOTIFY_SOCKET, or nothing.

And its watchdog (sd_watchdog_enabled(3)): a daemon that systemd has not heard from for WatchdogSec
of its unit is killed and started again.

A service manager that reads nothing any more, as systemd does not after a crash of its own, must
not stop the policing: what it does not take at once is told again later, and never waited for.
"""

from __future__ import annotations

import os
import socket
from collections import deque

_NS_PER_US = 1000
_MAX_UNTOLD = 16
_WATCHDOG = "WATCHDOG=1"


class Manager:
    """The service manager, if there is one."""

    def __init__(self) -> None:
        """Ask the environment whether anybody waits for a watchdog."""
        wanted = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        period_us = os.environ.get("WATCHDOG_USEC", "") if wanted else ""
        self._interval_ns = int(period_us) * _NS_PER_US // 4 if period_us.isdecimal() else 0
        self._due_ns = 0
        self._untold: deque[str] = deque(maxlen=_MAX_UNTOLD)

    def tell(self, state: str) -> None:
        """Say `READY=1`, `RELOADING=1`, `STOPPING=1`, ..."""
        self._untold.append(state)
        self._tell()

    def alive(self, now_ns: int) -> None:
        """Call this whenever the daemon has done what it is there for.

        The watchdog is told four times in the time that it waits.
        """
        if self._interval_ns and now_ns >= self._due_ns:
            self._due_ns = now_ns + self._interval_ns
            if _WATCHDOG not in self._untold:
                self._untold.append(_WATCHDOG)
        self._tell()

    def _tell(self) -> None:
        while self._untold and _taken(self._untold[0]):
            self._untold.popleft()


def _taken(state: str) -> bool:
    """Whether the manager has a message, or there is none to have it."""
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return True
    address = "\0" + path[1:] if path.startswith("@") else path
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
            manager.sendto(state.encode(), socket.MSG_DONTWAIT, address)
    except BlockingIOError:
        return False
    except OSError:
        pass  # A manager that is gone is no reason to stop policing.
    return True
