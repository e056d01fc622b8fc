"""Frames: lines of styled text, and the bytes that draw them (ECMA-48).

Plain escape codes, and neither curses nor a library: every terminal since the VT100 knows the eight
in use, while curses fails on hosts without the terminal's terminfo entry, which is the rule for new
terminals over ssh. A frame goes out in one write and is never wider than the screen, so nothing
flickers or wraps.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

from drld.cli.view.cells import cells, fit, visible


class Style(Enum):
    """How text looks; the value is its SGR parameter."""

    PLAIN = "0"
    BOLD = "1"
    DIM = "2"
    REVERSE = "7"
    ALARM = "1;31"
    """Something is dropped, or wrong: never by colour alone, for a number or a text says it too."""


class Span(NamedTuple):
    """A piece of a line."""

    text: str
    style: Style = Style.PLAIN


Line: TypeAlias = list[Span]

ENTER = "\x1b[?1049h\x1b[?25l"
"""The alternate screen, without a cursor."""
LEAVE = "\x1b[0m\x1b[?25h\x1b[?1049l"


def bounded(lines: Sequence[Line], width: int, height: int) -> list[Line]:
    """The part of a frame that the screen has room for, of visible text alone."""
    frame = []
    for line in lines[: max(height, 0)]:
        left, kept = width, Line()
        for span in line:
            text = visible(span.text)
            if cells(text) > left:
                text = fit(text, left)
            if text:
                kept.append(Span(text, span.style))
            left -= cells(text)
        frame.append(kept)
    return frame


def painted(lines: Sequence[Line], height: int, *, colour: bool = True) -> str:
    """The codes that draw a bounded frame over the one before it, on a screen of so many lines."""
    drawn = []
    for number, line in enumerate(lines, start=1):
        spans = "".join(f"\x1b[{_code(span.style, colour)}m{span.text}" for span in line)
        # Erased first: in the last column, erasing to the end would take the last character.
        drawn.append(f"\x1b[{number};1H\x1b[0m\x1b[2K{spans}")
    if len(lines) < height:
        drawn.append(f"\x1b[0m\x1b[{len(lines) + 1};1H\x1b[J")
    return "".join(drawn) + "\x1b[0m"


def _code(style: Style, colour: bool) -> str:
    return Style.BOLD.value if style is Style.ALARM and not colour else style.value


def plain(line: Line) -> str:
    """The text of a line."""
    return "".join(span.text for span in line).rstrip()
