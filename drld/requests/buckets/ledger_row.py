"""A row of the ledger at rest, as one `bytes`; times are ticks.

A row with one cell and no floor, the most frequent one, has 24 bytes: the cell's start, id and
tokens. Any other has a base, the TAT, the latest start and the floor from that base, and the cells
as `Cells.pack` packs them.
"""

from __future__ import annotations

import struct

from drld.requests.buckets.cells import Cells

_BASE_BYTES = 12
"""The size of a base: enough for years at the finest rates."""
_ONE = struct.Struct("<QI")
"""The only cell of a row, which starts at the base: id, tokens."""
_ONE_ROW = struct.Struct("<QiQI")
"""A row with one cell: the base in two parts, and `_ONE`. One call reads it."""
_MANY = struct.Struct("<qqq")
"""The fields before the cells, from the base: TAT, latest start, floor."""
_NO_FLOOR = -(2**63)


def packed(cells: Cells, tat: int, floor: int | None) -> bytes | None:
    """Return a row with these cells, TAT and floor, if any; None: it has no cells, or does not
    fit."""
    if floor is None and len(cells) == 1:
        ((start, entry, count),) = cells
        return start.to_bytes(_BASE_BYTES, "little", signed=True) + _ONE.pack(entry, count)
    if not cells or (data := cells.pack()) is None:
        return None
    base = cells.base
    ahead = _NO_FLOOR if floor is None else floor - base
    try:
        times = _MANY.pack(tat - base, cells.latest - base, ahead)
    except struct.error:
        return None
    return base.to_bytes(_BASE_BYTES, "little", signed=True) + times + data


def times(data: bytes, per: int) -> tuple[int, int]:
    """Return the TAT and the latest start of a row; a token takes `per` ticks."""
    if len(data) == _ONE_ROW.size:
        base, high, _, count = _ONE_ROW.unpack(data)
        if high:
            base += high << 64
        return base + count * per, base
    base = int.from_bytes(data[:_BASE_BYTES], "little", signed=True)
    tat, latest, _ = _MANY.unpack_from(data, _BASE_BYTES)
    return base + tat, base + latest


def unpacked(data: bytes) -> tuple[Cells, int | None]:
    """Return the cells of a row, and its floor; None: it has none."""
    base = int.from_bytes(data[:_BASE_BYTES], "little", signed=True)
    if len(data) > _ONE_ROW.size:
        *_, floor = _MANY.unpack_from(data, _BASE_BYTES)
        cells = Cells.unpack(base, data[_BASE_BYTES + _MANY.size :])
        return cells, None if floor == _NO_FLOOR else base + floor
    entry, count = _ONE.unpack_from(data, _BASE_BYTES)
    return Cells([(base, entry, count)]), None
