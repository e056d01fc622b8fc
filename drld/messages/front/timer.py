"""A timer with the resolution of the kernel's clock (timerfd_create(2)), as a descriptor.

The timeouts of epoll and of trio count milliseconds, and access delays of messages are shorter.
Python 3.13 has timerfd in `os`; older versions need the C library.
"""

from __future__ import annotations

import ctypes
import os

from drld.model import NS_PER_S

_CLOCK_MONOTONIC = 1
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC
_ABSOLUTE = 1
_libc = ctypes.CDLL(None, use_errno=True)


class _Setting(ctypes.Structure):
    """The C structure itimerspec: the interval of repetitions, and the time."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("s", ctypes.c_long),
        ("ns", ctypes.c_long),
    )


class Timer:
    """A descriptor that is readable from a time on, which may be set many times."""

    def __init__(self) -> None:
        """Begin without a time.

        Raises:
            OSError: there is no free descriptor.
        """
        self._fd: int = _libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._at_ns: int | None = None
        self._setting = _Setting()
        self._pointer = ctypes.byref(self._setting)

    def fileno(self) -> int:
        """The timer's descriptor."""
        return self._fd

    def set(self, at_ns: int | None) -> None:
        """Make the descriptor readable at this monotonic time, and not before; None: never."""
        if at_ns == self._at_ns:
            return
        self._at_ns = at_ns
        # A time of 0 would stop the timer.
        self._setting.s, self._setting.ns = divmod(
            max(at_ns, 1) if at_ns is not None else 0, NS_PER_S
        )
        _libc.timerfd_settime(self._fd, _ABSOLUTE, self._pointer, None)

    def clear(self) -> None:
        """Make the descriptor unreadable until another time is set."""
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return
        self._at_ns = None

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)
