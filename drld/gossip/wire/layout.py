"""Formats as tables: one description of a format serves to read and to write it.

A table is a row of words. A word has whole bytes, and holds one field or several, high bits first.
Integers are big-endian, reals are IEEE 754 binary32 (docs/wire-format.md).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Word(NamedTuple):
    """A number of bytes that are read at once, and the fields in them."""

    code: str
    """The format character of the `struct` module; a word `f` holds a single real."""
    fields: tuple[tuple[str, int], ...]
    """The name and the number of bits of each field, high bits first."""


class Table:
    """One format of a fixed size."""

    def __init__(self, *words: Word) -> None:
        self.words = words
        self.struct = struct.Struct(">" + "".join(word.code for word in words))
        self.size = self.struct.size
        """Bytes of the format."""
        self._integers: list[tuple[str, int, int, int]] = []
        """The name, word, shift and mask of each integer."""
        self._reals: list[tuple[str, int]] = []
        """The name and word of each real."""
        for index, (code, fields) in enumerate(words):
            if code == "f":
                self._reals.append((fields[0][0], index))
                continue
            shift = 0
            for name, bits in reversed(fields):
                self._integers.append((name, index, shift, (1 << bits) - 1))
                shift += bits

    def pack(self, fields: Mapping[str, int | float]) -> bytes:
        """The bytes of these fields.

        Raises:
            ValueError: an integer is out of bounds; the message begins with its name.
        """
        words: list[Any] = [0] * len(self.words)
        for name, index in self._reals:
            words[index] = fields[name]
        for name, index, shift, mask in self._integers:
            field = fields[name]
            if not isinstance(field, int) or not 0 <= field <= mask:
                raise ValueError(f"{name} does not fit {mask.bit_length()} bits")
            words[index] |= field << shift
        return self.struct.pack(*words)

    def pack_of(self, source: object) -> bytes:
        """The bytes of the attributes that have the names of the fields; as `pack`."""
        return self.pack({name: getattr(source, name) for name, *_ in self._integers})

    def fields(self, words: Sequence[Any]) -> dict[str, Any]:
        """The fields in the words that `struct` has read."""
        fields = {name: words[index] >> shift & mask for name, index, shift, mask in self._integers}
        for name, index in self._reals:
            fields[name] = words[index]
        return fields

    def read(self, data: bytes, offset: int = 0) -> dict[str, Any]:
        """The fields at an offset in `data`.

        Raises:
            struct.error: `data` is too short.
        """
        return self.fields(self.struct.unpack_from(data, offset))
