"""systemd's readiness protocol (sd_notify(3)) and watchdog (sd_watchdog_enabled(3)).

A message is one datagram to $NOTIFY_SOCKET; without that variable there are no messages. systemd
kills and restarts a daemon that sends no `WATCHDOG=1` for WatchdogSec of its unit.

A manager that stops reading, as systemd does after a crash of its own, must not stop the policing.
So a message that the manager does not take at once is sent again later, and no call blocks.

Sockets that listen outlive the daemon if the manager keeps them (sd_pid_notify_with_fds(3); its
unit has FileDescriptorStoreMax) and passes them to the next one (sd_listen_fds(3)).
"""

from __future__ import annotations

import os
import socket
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_NS_PER_US = 1000
_MAX_UNTOLD = 16
_WATCHDOG = "WATCHDOG=1"
_FIRST_PASSED = 3
"""Descriptor of the first socket that is passed (SD_LISTEN_FDS_START)."""


class Manager:
    """The service manager, if there is one."""

    def __init__(self) -> None:
        """Take the interval of the watchdog from the environment."""
        wanted = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        period_us = os.environ.get("WATCHDOG_USEC", "") if wanted else ""
        self._interval_ns = int(period_us) * _NS_PER_US // 4 if period_us.isdecimal() else 0
        self._due_ns = 0
        self._untold: deque[str] = deque(maxlen=_MAX_UNTOLD)
        self.ready = False
        """Whether the daemon's start is over."""

    def tell_ready(self) -> None:
        """Tell that the start is over."""
        self._tell("READY=1")

    def tell_stopping(self) -> None:
        """Tell that the daemon stops in order."""
        self._tell("STOPPING=1")

    @contextmanager
    def reloading(self, now_ns: int) -> Iterator[None]:
        """Tell that a reload runs, and when the context ends, that it has ended.

        Before READY=1 nothing is told. `now_ns` is the monotonic time.
        """
        if self.ready:
            self._tell(f"RELOADING=1\nMONOTONIC_USEC={now_ns // _NS_PER_US}")
        try:
            yield
        finally:
            if self.ready:
                self._tell("READY=1")

    def alive(self, now_ns: int) -> None:
        """Send `WATCHDOG=1` if it is due, four times in WatchdogSec; call this after each tick."""
        if self._interval_ns and now_ns >= self._due_ns:
            self._due_ns = now_ns + self._interval_ns
            if _WATCHDOG not in self._untold:
                self._untold.append(_WATCHDOG)
        self._send()

    @staticmethod
    def inherited() -> list[socket.socket]:
        """The sockets that the manager has passed to this process; the first call takes them."""
        count, pid = os.environ.pop("LISTEN_FDS", ""), os.environ.pop("LISTEN_PID", "")
        if pid != str(os.getpid()) or not count.isdecimal():
            return []
        found = []
        for fd in range(_FIRST_PASSED, _FIRST_PASSED + int(count)):
            os.set_inheritable(fd, False)
            found.append(socket.socket(fileno=fd))
        return found

    @staticmethod
    def keep(name: str, sock: socket.socket) -> bool:
        """Have the manager keep a socket, under a name without colons; return whether it may."""
        return _taken(f"FDSTORE=1\nFDNAME={name}", [sock.fileno()]) is True

    @staticmethod
    def forget(name: str) -> None:
        """Have the manager close the socket that it keeps under this name."""
        _taken(f"FDSTOREREMOVE=1\nFDNAME={name}")

    def _tell(self, state: str) -> None:
        self._untold.append(state)
        self._send()

    def _send(self) -> None:
        while self._untold and _taken(self._untold[0]) is not False:
            self._untold.popleft()


def _taken(state: str, descriptors: Sequence[int] = ()) -> bool | None:
    """Send a message with descriptors; return False if the manager's queue is full, and None if
    there is no manager."""
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return None
    address = "\0" + path[1:] if path.startswith("@") else path
    passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] * bool(descriptors)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
            manager.sendmsg([state.encode()], passed, socket.MSG_DONTWAIT, address)
    except BlockingIOError:
        return False
    except OSError:
        return None  # Without a manager the daemon still polices.
    return True
