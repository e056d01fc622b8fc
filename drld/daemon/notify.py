"""systemd's readiness protocol (sd_notify(3)) and watchdog (sd_watchdog_enabled(3)).

A message is one datagram to $NOTIFY_SOCKET; without that variable there are no messages. systemd
kills and restarts a daemon that sends no `WATCHDOG=1` for WatchdogSec of its unit.

A manager that stops reading, as systemd does after a crash of its own, must not stop the policing.
So a message that the manager does not take at once is sent again later, and no call blocks.
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
        """Read the interval of the watchdog from the environment."""
        wanted = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        period_us = os.environ.get("WATCHDOG_USEC", "") if wanted else ""
        self._interval_ns = int(period_us) * _NS_PER_US // 4 if period_us.isdecimal() else 0
        self._due_ns = 0
        self._untold: deque[str] = deque(maxlen=_MAX_UNTOLD)

    def tell(self, state: str) -> None:
        """Send `READY=1`, `RELOADING=1`, `STOPPING=1`, ..."""
        self._untold.append(state)
        self._tell()

    def alive(self, now_ns: int) -> None:
        """Send `WATCHDOG=1` if it is due, four times in WatchdogSec; call this after each tick."""
        if self._interval_ns and now_ns >= self._due_ns:
            self._due_ns = now_ns + self._interval_ns
            if _WATCHDOG not in self._untold:
                self._untold.append(_WATCHDOG)
        self._tell()

    def _tell(self) -> None:
        while self._untold and _taken(self._untold[0]):
            self._untold.popleft()


def _taken(state: str) -> bool:
    """Send a message; return False if the manager's queue is full."""
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
        pass  # Without a manager the daemon still polices.
    return True
