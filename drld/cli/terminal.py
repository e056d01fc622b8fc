"""The terminal of a live view: size, keys and frames."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from contextlib import suppress
from types import FrameType, TracebackType

from drld.cli.view.frame import ENTER, LEAVE, Line, bounded, painted
from drld.cli.view.keys import keys, pressed_escape

_ESCAPE_S = 0.05
"""Time for the rest of a key's sequence; enough for a slow line."""
# SIGINT too: a shell starts background commands with SIGINT ignored, and their children inherit it.
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Terminal:
    """The terminal on stdin and stdout. Leaving the context restores it in every case."""

    def __init__(self) -> None:
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._wakes, self._wake = os.pipe()
        self._typed = ""
        self._shown = ""
        self._colour = not os.environ.get("NO_COLOR")
        """Whether to use colours (https://no-color.org)."""

    def __enter__(self) -> Terminal:
        """Take the terminal: keys come at once, and suspending is off."""
        os.set_blocking(self._wakes, False)
        os.set_blocking(self._wake, False)
        self._before = termios.tcgetattr(self._in)
        tty.setcbreak(self._in)
        mode = termios.tcgetattr(self._in)
        mode[6][termios.VSUSP] = b"\0"  # A suspended view would leave the shell its screen.
        termios.tcsetattr(self._in, termios.TCSANOW, mode)
        self._woken = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        self._handlers = {signal.SIGWINCH: signal.signal(signal.SIGWINCH, _nothing)}
        self._handlers |= {number: signal.signal(number, _interrupt) for number in _ENDS}
        self._write(ENTER)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the terminal back as it was."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._woken)
        # The terminal may have gone: the connection of ssh has ended.
        with suppress(OSError, termios.error):
            self._write(LEAVE)
            termios.tcsetattr(self._in, termios.TCSANOW, self._before)
        os.close(self._wakes)
        os.close(self._wake)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines of the terminal now."""
        size = os.get_terminal_size(self._out)
        return size.columns or 80, size.lines or 24

    def show(self, frame: list[Line]) -> None:
        """Draw a frame, unless the same frame is shown already."""
        width, height = self.size
        drawn = painted(bounded(frame, width, height), height, colour=self._colour)
        if (shown := f"{width} {height} {drawn}") != self._shown:
            self._shown = shown
            self._write(drawn)

    def wake(self) -> None:
        """Have `wait` return; any thread may call this."""
        with suppress(OSError):  # It will return anyway, or the view has ended.
            os.write(self._wake, b"w")

    def wait(self, seconds: float) -> list[str]:
        """Wait for keys, at most `seconds`; return none after that time or a wake-up."""
        ready, _, _ = select.select([self._in, self._wakes], [], [], max(seconds, 0.0))
        if self._wakes in ready:
            with suppress(BlockingIOError):
                os.read(self._wakes, 4096)
        return self._read() if self._in in ready else []

    def _read(self) -> list[str]:
        found: list[str] = []
        while data := os.read(self._in, 4096):
            more, self._typed = keys(self._typed + data.decode(errors="replace"))
            found += more
            if not self._typed:
                return found
            if not select.select([self._in], [], [], _ESCAPE_S)[0]:
                found += pressed_escape(self._typed)
                self._typed = ""
                return found
        raise KeyboardInterrupt  # The terminal has gone.

    def _write(self, text: str) -> None:
        data = text.encode(sys.stdout.encoding or "utf-8", "replace")
        while data:
            data = data[os.write(self._out, data) :]


def _nothing(_: int, __: FrameType | None) -> None:
    """A signal that only wakes up `wait`."""


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt
