"""A text with parts of it replaced, such as a good configuration with a mistake in it."""

from __future__ import annotations


def replaced(text: str, *changes: tuple[str, str]) -> str:
    """The text with the first occurrence of each old part replaced; each must occur."""
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return text
