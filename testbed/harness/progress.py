"""What is being done: lines that change in place on a terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import TextIO


class Board:
    """A line for each thing that is being done; elsewhere than on a terminal, nothing."""

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
        """Say something that stays, above the lines."""
        self._clear()
        self._stream.write("".join(f"{line}\n" for line in [text, *self._shown]))
        self._stream.flush()

    def end(self) -> None:
        """Nothing more comes; leave nothing but the notes."""
        self._clear()
        self._shown = []
        self._stream.flush()

    def _clear(self) -> None:
        """Go back to where the lines begin, and wipe everything from there on."""
        if self._shown:
            self._stream.write(f"\x1b[{len(self._shown)}F\x1b[J")


class Progress(Board):
    """One thing after another; elsewhere than on a terminal each is a line that stays."""

    _run = _last = ""

    def begin(self, run: str) -> None:
        """A run begins; `run` says which."""
        self._run = run

    def step(self, text: str) -> None:
        """Say what is being done now."""
        line = f"{self._run}: {text}"
        self.show([line])
        if not self._terminal and line != self._last:
            self.note(line)
        self._last = line

    def countdown(self, seconds_left: int) -> None:
        """Say how long the run still takes; every second on a terminal, every ten elsewhere."""
        if self._terminal or seconds_left % 10 == 0:
            self.step(f"running, {seconds_left} s left")
