"""The progress of a command through a file, on a terminal."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import IO

import click

from drld.units import human_number

_WIDTH = 60
"""Columns of the line: a line overwrites the whole line before it."""


class Progress:
    """A line on stderr with the part of a file that is read, the count of its items, and the rate.

    The line is rewritten in place. If stderr is no terminal, nothing is written.
    """

    def __init__(self, stream: IO[bytes], file: Path, items: str) -> None:
        """Begin; the file is read from `stream`, and `items` is the plural name of its items."""
        self._stream = stream
        self._size = max(file.stat().st_size, 1)
        self._items = items
        self._began = time.monotonic()
        self._shown = sys.stderr.isatty()

    def show(self, count: int) -> None:
        """Show that `count` items are done."""
        if self._shown:
            self._write(f"{self._stream.tell() / self._size:.0%}, {human_number(count)}", count)

    def end(self, count: int) -> None:
        """Show that all `count` items are done."""
        if self._shown:
            self._write(str(count), count)
            click.echo(err=True)

    def _write(self, done: str, count: int) -> None:
        rate = human_number(count / (time.monotonic() - self._began))
        text = f"{done} {self._items}, {rate} {self._items}/s"
        click.echo(f"\r{text:<{_WIDTH}}", err=True, nl=False)
