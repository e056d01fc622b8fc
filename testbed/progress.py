"""One line with the testbed's progress, which changes in place on a terminal."""

from __future__ import annotations

import sys
from typing import TextIO

_WIDTH = 78


class Progress:
    """Progress of a series of runs."""

    def __init__(self, stream: TextIO = sys.stderr) -> None:
        """Write to `stream`; plain lines unless it is a terminal."""
        self._stream = stream
        self._terminal = stream.isatty()
        self._run = ""
        self._last = ""

    def begin(self, run: str) -> None:
        """Begin the run with the name `run`."""
        self._run = run

    def step(self, text: str) -> None:
        """Show the present step."""
        line = f"{self._run}: {text}"[:_WIDTH]
        if self._terminal:
            self._stream.write(f"\r{line:<{_WIDTH}}")
        elif line != self._last:
            self._stream.write(f"{line}\n")
        self._last = line
        self._stream.flush()

    def countdown(self, seconds_left: int) -> None:
        """Show the remaining time; every second on a terminal, every ten elsewhere."""
        if self._terminal or seconds_left % 10 == 0:
            self.step(f"running, {seconds_left} s left")

    def note(self, text: str) -> None:
        """Print a line that stays."""
        if self._terminal:
            self._stream.write(f"\r{'':<{_WIDTH}}\r")
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def end(self) -> None:
        """End the progress; leave the terminal's line empty."""
        if self._terminal:
            self._stream.write(f"\r{'':<{_WIDTH}}\r")
            self._stream.flush()
