"""Keys of a terminal, from the bytes that it sends for them."""

from __future__ import annotations

_SEQUENCES = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page-up",
    "\x1b[6~": "page-down",
    "\x1b[H": "home",
    "\x1bOH": "home",
    "\x1b[1~": "home",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\b": "backspace",
}


def keys(typed: str) -> tuple[list[str], str]:
    """The keys, and the beginning of a sequence whose end has not come yet.

    A key is a visible character, or a name such as `up`; others are left out.
    """
    found: list[str] = []
    while typed:
        if typed[0] == "\x1b":
            end = _end(typed)
            if end is None:
                return found, typed
        else:
            end = 1
        key, typed = typed[:end], typed[end:]
        name = _SEQUENCES.get(key, key)
        if name.isprintable():
            found.append(name)
    return found, ""


def pressed_escape(rest: str) -> list[str]:
    """The keys of a beginning to which nothing came: escape, and what was typed after it."""
    return ["escape", *(char for char in rest[1:] if char.isprintable())] if rest else []


def _end(typed: str) -> int | None:
    """Length of the sequence that the text begins with; None if it goes on."""
    if len(typed) == 1:
        return None
    if typed[1] == "O":
        return 3 if len(typed) > 2 else None
    if typed[1] != "[":
        return 1
    for index, char in enumerate(typed[2:], start=2):
        if "@" <= char <= "~":
            return index + 1
    return None
