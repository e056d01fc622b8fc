"""The floor of the ledger (`ledger`) as it travels: the TAT of the cells that are no longer told.

A limiter without knowledge is told the floor, as a cell of no origin. Without it, a key that always
uses its whole rate would look nearly unused. The next cell of each origin comes with it. So the
receiver knows which of its own cells the floor has, and counts no token twice.

Levels. Dates are late by a delay, limiters change a rate at different moments, and clocks drift. So
floors differ. While a key always uses its rate, nothing evens them out, and the limiter with the
least level takes all that is refilled. So one limiter leads (`leading`), and the others take its
floors for theirs, fuller or not. They are later than the leader's by the way of the message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from drld.requests.buckets.bucket import News
from drld.requests.buckets.ledger_cell import FLOOR, MAX_AGE_MS, Cell
from drld.requests.buckets.ledger_shape import SLOTS
from drld.requests.buckets.ledger_state import MAX_TOKENS, LedgerState


def passed(entry: int, nexts: Mapping[int, int]) -> bool:
    """Return whether a cell is before the next one of its origin, if there is a next one."""
    following = nexts.get(entry // SLOTS)
    return following is not None and 0 < (following - entry) % SLOTS < SLOTS // 2


def _earliest(entries: Iterable[int]) -> dict[int, int]:
    """Return the first of these cells of each origin, by origin."""
    found: dict[int, int] = {}
    for entry in entries:
        if entry // SLOTS not in found or passed(entry, found):
            found[entry // SLOTS] = entry
    return found


class LedgerFloors(LedgerState):
    """The exchange of floors."""

    __slots__ = ()

    def floor(self) -> News:
        """See `Bucket.floor`."""
        # It is of no age: any number above 0 does.
        return {FLOOR: 1}

    def _told_floor(self, now: int) -> tuple[Cell, dict[int, int]] | None:
        """Return the floor as it travels, and the next cell of each origin; None: no tokens of its
        cells are in use.

        It has the cells that a newcomer refuses as too old. Where delays have changed the order of
        an origin's cells, it has none that follow the next cell.
        """
        shape = self._shape
        self._collect(now)
        start = now - min(shape.life // shape.per_ms, MAX_AGE_MS) * shape.per_ms
        if self._count and self._start <= start:
            self._close()
        cells = self._all()
        place = cells.place_of(start)
        young = [entry for entry, _ in cells.since(place)]
        nexts = _earliest([*young, self._id] if self._count else young)
        followers = sum(
            count for _, entry, count in islice(cells, place)
            if entry // SLOTS in nexts and not passed(entry, nexts)
        )  # fmt: skip
        tat = cells.fold(self._floor, shape.per, place) - followers * shape.per
        tokens = min(-(-(tat - start) // shape.per), MAX_TOKENS)
        if tokens <= 0:
            return None
        age_ms = min((now - tat + tokens * shape.per) // shape.per_ms, MAX_AGE_MS)
        return Cell(FLOOR, 0, tokens, age_ms), nexts

    def _floor_of(self, delta: tuple[Cell, ...], floor: Cell, now: int) -> int:
        """Return the floor before the cells here that ends where a peer's floor does, which comes
        in this delta.

        Of an origin without a cell in the delta, the peer's floor has the cells that a newcomer
        refuses as too old.
        """
        shape = self._shape
        oldest = now - shape.life
        if self._count and self._start < oldest:
            self._close()
        nexts = _earliest(cell.origin * SLOTS + cell.slot for cell in delta if cell.origin)
        both = sum(
            count for start, entry, count in self._all()
            if (passed(entry, nexts) if entry // SLOTS in nexts else start < oldest)
        )  # fmt: skip
        self._changed()
        self._all().refold()
        return now - floor.age_ms * shape.per_ms + (floor.tokens - both) * shape.per

    def follow(self, delta: tuple[Cell, ...], now_ns: int) -> tuple[Cell, ...]:
        """See `Bucket.follow`."""
        floor = next((cell for cell in delta if not cell.origin), None)
        if floor is None:
            return delta
        self._floor = self._floor_of(delta, floor, now_ns * self._shape.rate)
        return tuple(cell for cell in delta if cell.origin)
