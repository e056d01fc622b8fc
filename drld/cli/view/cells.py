"""Text for a terminal: its width is known, and none of it is a command to the terminal.

A name comes from elsewhere, so it may hold escape codes. Characters that are not visible, or whose
width terminals disagree about (controls, combining marks, format characters), become a `?`. Others
take one cell, or two if Unicode calls them wide (UAX 11).
"""

from __future__ import annotations

import unicodedata

REPLACEMENT = "?"
CUT = "~"
"""Ends a text that was cut."""
NO_ROWS = "(none)"
"""Stands below the headings of an empty table."""
_MEDIAL_JAMO = (range(0x1160, 0x1200), range(0xD7B0, 0xD800))
"""Vowels and finals of old Hangul: letters that take no cell of their own."""


def visible(text: str) -> str:
    """The text without what may command a terminal, or has no certain width."""
    return "".join(
        char if char == " " or _certain(char) else REPLACEMENT
        for char in unicodedata.normalize("NFC", text)
    )


def cells(text: str) -> int:
    """Cells that a visible text takes."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def fit(text: str, width: int, *, right: bool = False) -> str:
    """A visible text, cut or padded to exactly so many cells; at the left if `right`."""
    text = visible(text)
    if cells(text) > width:
        kept = ""
        for char in text:
            if cells(kept + char) > width - len(CUT):
                break
            kept += char
        text = (kept + CUT)[:width] if width > 0 else ""
    padding = " " * (width - cells(text))
    return padding + text if right else text + padding


def _certain(char: str) -> bool:
    if char.isascii():
        return char.isprintable()
    jamo = any(ord(char) in it for it in _MEDIAL_JAMO)
    return unicodedata.category(char)[0] in "LNPS" and not jamo
