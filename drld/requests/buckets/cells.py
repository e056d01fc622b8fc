"""The closed cells of a row, in the order of their starts: 20 bytes each.

Starts are ticks from a base of the row, so that 64 bits hold them. Where they do not (a policy
whose rate shares few factors with a second, and a long fill), they are integers of any size.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

_BLOCK = 32
"""Cells from one remembered TAT to the next: the most that a fold visits beyond those that changed.
Remembering takes 40 bytes a block, until the row rests."""
_CELL_BYTES = 20
_FAR = 2**60
"""Cells whose oldest is so many ticks from the base get another base."""


class Cells:
    """Cells by id, which is any number of 64 bits."""

    __slots__ = ("_counts", "_ids", "_marks", "_starts", "base", "late")

    def __init__(self, cells: Iterable[tuple[int, int, int]] = ()) -> None:
        """`cells` are (start, id, count), the oldest first."""
        columns = [*zip(*cells, strict=True)] or [(), (), ()]
        self.base = columns[0][0] if columns[0] else 0
        """Where starts are counted from, ticks."""
        self._starts = _narrow([start - self.base for start in columns[0]])
        self._ids = array("Q", columns[1])
        self._counts = array("I", columns[2])
        self.late = 0
        """Tokens of cells that came too late."""
        self._marks: list[int] = []
        """From the base, the TAT before cell `_BLOCK`, `2 * _BLOCK`, ..., as far as it is known."""

    def __len__(self) -> int:
        """The number of cells."""
        return len(self._ids)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """(start, id, count) of each, the oldest first."""
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
        """The place of a cell."""
        try:
            return self._ids.index(cell)
        except ValueError:
            return None

    def at(self, place: int) -> tuple[int, int]:
        """The start and the count of the cell at a place."""
        return self.base + self._starts[place], self._counts[place]

    def insert(self, start: int, cell: int, count: int) -> None:
        """Add a cell, behind those that start with it."""
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
        """Take out the cell at a place."""
        del self._starts[place], self._ids[place], self._counts[place]
        del self._marks[place // _BLOCK :]

    def place_of(self, start: int) -> int:
        """The number of cells that start up to then."""
        return bisect_right(self._starts, start - self.base)

    def fold(self, floor: int, per: int, end: int) -> int:
        """The TAT by the oldest `end` cells and the floor, where a token takes `per` ticks.

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
        """The floor has changed: what was folded is forgotten."""
        self._marks.clear()

    def fold_on(self, tat: int, per: int, place: int) -> int:
        """The TAT after the cells from a place on, where it was `tat` before."""
        tat -= self.base
        for start, count in zip(self._starts[place:], self._counts[place:], strict=True):
            tat = (start if start > tat else tat) + count * per
        return self.base + tat

    def drop_before(self, start: int, floor: int, per: int) -> int:
        """Remove the cells that start before then; return the floor with them folded in."""
        count = bisect_left(self._starts, start - self.base)
        if not count:
            return floor
        floor = self.fold(floor, per, count)
        del self._starts[:count], self._ids[:count], self._counts[:count]
        self._marks.clear()
        if self._starts and not -_FAR < self._starts[0] < _FAR:
            oldest = self._starts[0]
            self.base += oldest
            self._starts = _narrow([start - oldest for start in self._starts])
        return floor

    def pack(self) -> bytes | None:
        """The cells without their base; None: 64 bits are too few for a start."""
        if isinstance(self._starts, list):
            return None
        return b"".join((self._starts, self._ids, self._counts))

    @classmethod
    def unpack(cls, base: int, data: bytes) -> Cells:
        """The cells that `pack` packed."""
        cells, count = cls(), len(data) // _CELL_BYTES
        cells.base = base
        assert not isinstance(cells._starts, list)
        cells._starts.frombytes(data[: 8 * count])
        cells._ids.frombytes(data[8 * count : 16 * count])
        cells._counts.frombytes(data[16 * count :])
        return cells


def _narrow(starts: list[int]) -> array[int] | list[int]:
    """Starts in 64 bits each, if they fit."""
    try:
        return array("q", starts)
    except OverflowError:
        return starts
