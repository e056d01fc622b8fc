"""How far a command is in a file, on a terminal."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import IO

import click

from drld.units import human_number

_WIDTH = 60
"""Columns of the line: each writes over all of the one before."""


class Progress:
    """A line on stderr that is written anew: of a file, how much is read, and how fast.

    Nothing where stderr is no terminal.
    """

    def __init__(self, stream: IO[bytes], file: Path, items: str) -> None:
        """Of a file that is read from a stream; `items` is what it has many of."""
        self._stream = stream
        self._size = max(file.stat().st_size, 1)
        self._items = items
        self._began = time.monotonic()
        self._shown = sys.stderr.isatty()

    def show(self, count: int) -> None:
        """So many items are done."""
        if self._shown:
            self._write(f"{self._stream.tell() / self._size:.0%}, {human_number(count)}", count)

    def end(self, count: int) -> None:
        """All items are done."""
        if self._shown:
            self._write(str(count), count)
            click.echo(err=True)

    def _write(self, done: str, count: int) -> None:
        rate = human_number(count / (time.monotonic() - self._began))
        text = f"{done} {self._items}, {rate} {self._items}/s"
        click.echo(f"\r{text:<{_WIDTH}}", err=True, nl=False)
