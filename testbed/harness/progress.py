"""Progress: lines that change in place on a terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import TextIO


class Board:
    """A line for each task in progress; without a terminal, only notes are printed."""

    def __init__(self, stream: TextIO = sys.stderr) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._shown: list[str] = []

    def show(self, lines: Sequence[str]) -> None:
        """Replace all lines."""
        if not self._terminal:
            return
        width = shutil.get_terminal_size().columns - 1
        self._clear()
        self._shown = [line[:width] for line in lines]
        self._stream.write("".join(f"{line}\n" for line in self._shown))
        self._stream.flush()

    def note(self, text: str) -> None:
        """Print a line that stays, above the others."""
        self._clear()
        self._stream.write("".join(f"{line}\n" for line in [text, *self._shown]))
        self._stream.flush()

    def end(self) -> None:
        """Remove all lines except the notes."""
        self._clear()
        self._shown = []
        self._stream.flush()

    def _clear(self) -> None:
        """Go back to the first line, and clear the rest of the screen."""
        if self._shown:
            self._stream.write(f"\x1b[{len(self._shown)}F\x1b[J")


class Progress(Board):
    """One task after another; without a terminal each step is a line that stays."""

    _run = _last = ""

    def begin(self, run: str) -> None:
        """A run begins; `run` names it."""
        self._run = run

    def step(self, text: str) -> None:
        """Report the present step."""
        line = f"{self._run}: {text}"
        self.show([line])
        if not self._terminal and line != self._last:
            self.note(line)
        self._last = line

    def countdown(self, seconds_left: int) -> None:
        """Report the remaining time: each second on a terminal, else every ten."""
        if self._terminal or seconds_left % 10 == 0:
            self.step(f"running, {seconds_left} s left")
