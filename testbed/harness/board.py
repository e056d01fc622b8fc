"""What is being done, several things at a time: lines that change in place on a terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import TextIO


class Board:
    """A head line with a line for each thing below it; elsewhere than on a terminal, nothing."""

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
