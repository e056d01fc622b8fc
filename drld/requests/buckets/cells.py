"""The closed cells of a row, in the order of their starts: 20 bytes each, and about 12 in a
long row at rest.

Starts are ticks from a base of the row, so 64 bits hold them. A policy whose rate shares few
factors with a second, and that fills slowly, needs integers of any size.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

_CELL_BYTES = 20
_ID_BYTES = 6
"""The bytes of an id that are not 0: 32 bits of an origin, 16 of a slot."""
_NARROW = 8
"""Rows of this many cells leave bytes out that are 0, at rest; it takes 3 us longer."""
_BLOCK = 32
"""The number of cells between two remembered TATs. A fold visits at most as many cells beyond those
that changed. Remembering takes 40 bytes a block, until the row comes to rest."""
_START, _ID, _COUNT = map(struct.Struct, ("=q", "=Q", "=I"))
_FAR = 2**60
"""Cells whose oldest is this many ticks from the base get another base."""


class Cells:
    """Cells by id; an id is a number of 48 bits."""

    __slots__ = ("_counts", "_ids", "_marks", "_starts", "base", "late")

    def __init__(self, cells: Iterable[tuple[int, int, int]] = ()) -> None:
        """`cells` are (start, id, count), the oldest first."""
        columns = [*zip(*cells, strict=True)] or [(), (), ()]
        self.base = columns[0][0] if columns[0] else 0
        """The tick from which starts are counted."""
        self._starts = _narrow([start - self.base for start in columns[0]])
        self._ids = array("Q", columns[1])
        self._counts = array("I", columns[2])
        self.late = 0
        """The tokens of cells that came too late."""
        self._marks: list[int] = []
        """The TATs before cell `_BLOCK`, `2 * _BLOCK`, ..., from the base, as far as they are
        known."""

    def __len__(self) -> int:
        """The number of cells."""
        return len(self._ids)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """Iterate over (start, id, count), the oldest first."""
        base = self.base
        starts = (base + start for start in self._starts)
        return zip(starts, self._ids, self._counts, strict=True)

    def since(self, place: int) -> Iterator[tuple[int, int]]:
        """Return (id, count) of the cells from a place on."""
        return zip(self._ids[place:], self._counts[place:], strict=True)

    @property
    def latest(self) -> int:
        """The largest start; there must be a cell."""
        return self.base + self._starts[-1]

    def find(self, cell: int) -> int | None:
        """Return the place of a cell; None: it is not here."""
        try:
            return self._ids.index(cell)
        except ValueError:
            return None

    def at(self, place: int) -> tuple[int, int]:
        """Return the start and the count of the cell at a place."""
        return self.base + self._starts[place], self._counts[place]

    def insert(self, start: int, cell: int, count: int) -> None:
        """Add a cell, behind the cells with the same start."""
        if not self._ids:
            self.base = start
        start -= self.base
        place = bisect_right(self._starts, start)
        try:
            self._starts.insert(place, start)
        except OverflowError:
            self._starts = [*self._starts]
            self._starts.insert(place, start)
        self._ids.insert(place, cell)
        self._counts.insert(place, count)
        del self._marks[place // _BLOCK :]

    def remove(self, place: int) -> None:
        """Remove the cell at a place."""
        del self._starts[place], self._ids[place], self._counts[place]
        del self._marks[place // _BLOCK :]

    def place_of(self, start: int) -> int:
        """Return the number of cells whose start is at most this one."""
        return bisect_right(self._starts, start - self.base)

    def fold(self, floor: int, per: int, end: int) -> int:
        """Return the TAT after the floor and the oldest `end` cells, where a token takes `per`
        ticks.

        Floor and `per` must be the same in all calls until cells are dropped.
        """
        marks, starts, counts = self._marks, self._starts, self._counts
        known = min(len(marks), end // _BLOCK)
        tat = marks[known - 1] if known else floor - self.base
        place = known * _BLOCK
        while place < end:
            stop = min(place + _BLOCK, end)
            for start, count in zip(starts[place:stop], counts[place:stop], strict=True):
                tat = (start if start > tat else tat) + count * per
            place = stop
            if place == (len(marks) + 1) * _BLOCK:
                marks.append(tat)
        return self.base + tat

    def refold(self) -> None:
        """Forget the remembered TATs, because the floor has changed."""
        self._marks.clear()

    def fold_on(self, tat: int, per: int, place: int) -> int:
        """Return the TAT after the cells from a place on, where it was `tat` before."""
        tat -= self.base
        for start, count in zip(self._starts[place:], self._counts[place:], strict=True):
            tat = (start if start > tat else tat) + count * per
        return self.base + tat

    def drop_before(self, start: int, floor: int, per: int) -> int:
        """Remove the cells with earlier starts; return the floor with them folded in."""
        count = bisect_left(self._starts, start - self.base)
        if not count:
            return floor
        floor = self.fold(floor, per, count)
        del self._starts[:count], self._ids[:count], self._counts[:count]
        self._marks.clear()
        if self._starts and not -_FAR < self._starts[0] < _FAR:
            self._rebase()
        return floor

    def _rebase(self) -> None:
        """Count starts from the oldest one."""
        oldest = self._starts[0]
        self.base += oldest
        self._starts = _narrow([start - oldest for start in self._starts])
        self._marks.clear()

    def pack(self) -> bytes | None:
        """Return the cells without their base; None: 64 bits are too few for a start.

        The first byte is 0, or, in a long row, the number of bytes of a start; then the base is the
        oldest start, and the second byte is the number of bytes of a count.
        """
        narrow = len(self) >= _NARROW and sys.byteorder == "little"
        if narrow and self._starts[0]:
            self._rebase()
        starts, ids, counts = self._starts, self._ids, self._counts
        if isinstance(starts, list):
            return None
        if not narrow:
            return b"".join((b"\0", starts, ids, counts))
        wide, tall = max(_bytes(starts[-1]), 1), _bytes(max(counts))
        planes = *_planes(starts, wide), *_planes(ids, _ID_BYTES), *_planes(counts, tall)
        return b"".join((bytes((wide, tall)), *planes))

    @classmethod
    def unpack(cls, base: int, data: bytes) -> Cells:
        """Return the cells that `pack` packed."""
        cells, wide, tall = cls(), data[0], data[1]
        cells.base = base
        if not wide:
            count = len(data) // _CELL_BYTES
            ids, counts = 1 + 8 * count, 1 + 16 * count
            columns = data[1:ids], data[ids:counts], data[counts:]
        else:
            count = (len(data) - 2) // (wide + _ID_BYTES + tall)
            ids, counts = 2 + wide * count, 2 + (wide + _ID_BYTES) * count
            columns = (
                _joined(data[2:ids], count, 8), _joined(data[ids:counts], count, 8),
                _joined(data[counts:], count, 4),
            )  # fmt: skip
        cells._starts, cells._ids, cells._counts = map(array, "qQI", columns)
        return cells


def one(cell: int, count: int) -> bytes:
    """Return a cell that starts at the base, as `Cells.pack` packs it."""
    return bytes(9) + _ID.pack(cell) + _COUNT.pack(count)


def appended(data: bytes, oldest: int, start: int, cell: int, count: int) -> bytes | None:
    """Return packed cells (`Cells.pack`) with a last one more; times are ticks from their base.

    None: the cells must be unpacked, as some begin before `oldest`, or there is no room.
    """
    if start >= _FAR:
        return None
    wide, tall = data[0], data[1]
    if wide:
        if oldest > 0:
            return None
        size = (len(data) - 2) // (wide + _ID_BYTES + tall)
        planes = [data[place : place + size] for place in range(2, len(data), size)]
        wider, taller = max(wide, _bytes(start)), max(tall, _bytes(count))
        planes[wide:wide] = [bytes(size)] * (wider - wide)
        planes += [bytes(size)] * (taller - tall)
        last = start.to_bytes(wider, "little") + cell.to_bytes(_ID_BYTES, "little")
        last += count.to_bytes(taller, "little")
        parts = [plane + last[place : place + 1] for place, plane in enumerate(planes)]
        return bytes((wider, taller)) + b"".join(parts)
    size = len(data) // _CELL_BYTES
    if size + 1 >= _NARROW or _START.unpack_from(data, 1)[0] < oldest:
        return None
    ids, counts = 1 + 8 * size, 1 + 16 * size
    starts = data[:ids] + _START.pack(start)
    return starts + data[ids:counts] + _ID.pack(cell) + data[counts:] + _COUNT.pack(count)


def _bytes(number: int) -> int:
    """Return the number of bytes that a number takes."""
    return (number.bit_length() + 7) // 8


def _planes(column: array[int], width: int) -> Iterator[bytes]:
    """Return the lowest bytes of all numbers, their second lowest, and so on: `width` planes."""
    data = column.tobytes()
    return (data[place :: column.itemsize] for place in range(width))


def _joined(planes: bytes, count: int, size: int) -> bytes:
    """Return numbers of `size` bytes whose planes are these; missing planes are 0."""
    data = bytearray(size * count)
    for place in range(len(planes) // count):
        data[place::size] = planes[place * count : (place + 1) * count]
    return bytes(data)


def _narrow(starts: list[int]) -> array[int] | list[int]:
    """Return starts in 64 bits each, if they fit, otherwise as they are."""
    try:
        return array("q", starts)
    except OverflowError:
        return starts
