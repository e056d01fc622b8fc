"""Formats as tables: one that is read and written is described once (docs/wire-format.md).

A table is a row of words, each a number of whole bytes that holds one field or several, high bits
first. Integers are big-endian, reals are IEEE 754 binary32.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple


class Word(NamedTuple):
    """Bytes that are read at once, and the fields they hold, high bits first."""

    code: str
    """Of the `struct` module; `f` holds a single real."""
    fields: tuple[tuple[str, int], ...]
    """(name, bits) of each."""


class Table:
    """One format of a fixed size."""

    def __init__(self, *words: Word) -> None:
        self.words = words
        self.struct = struct.Struct(">" + "".join(word.code for word in words))
        self.size = self.struct.size
        """Bytes."""

    def pack(self, fields: Mapping[str, int | float]) -> bytes:
        """The bytes of these fields.

        Raises:
            ValueError: a field does not fit its bits; the message begins with its name.
        """
        words: list[int | float] = []
        for code, layout in self.words:
            if code == "f":
                words.append(fields[layout[0][0]])
                continue
            word = 0
            for name, bits in layout:
                field = fields[name]
                if not isinstance(field, int) or not 0 <= field < 1 << bits:
                    raise ValueError(f"{name} does not fit {bits} bits")
                word = word << bits | field
            words.append(word)
        return self.struct.pack(*words)

    def integers(self, words: tuple[int | float, ...]) -> dict[str, int]:
        """The fields of what `struct` read, but for the reals."""
        fields: dict[str, int] = {}
        for (_, layout), word in zip(self.words, words, strict=True):
            if isinstance(word, float):
                continue
            shift = 0
            for name, bits in reversed(layout):
                fields[name] = word >> shift & ((1 << bits) - 1)
                shift += bits
        return fields

    def read(self, data: bytes, offset: int = 0) -> dict[str, int]:
        """The integers of a table without reals.

        Raises:
            struct.error: `data` is too short.
        """
        return self.integers(self.struct.unpack_from(data, offset))
