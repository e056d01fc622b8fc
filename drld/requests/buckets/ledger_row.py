"""A row of the ledger at rest, as one `bytes`; times are ticks.

A row with one cell and no floor, the most frequent one, has 24 bytes: the cell's start, id and
tokens; and 12 more if there are untold tokens, which then are of that cell. Any other has a base,
the TAT, the latest start and the floor from that base, the untold tokens, and the cells as
`Cells.pack` packs them.
"""

from __future__ import annotations

import struct

from drld.requests.buckets import cells as packed_cells
from drld.requests.buckets.cells import Cells
from drld.requests.buckets.ledger_shape import SLOTS

_BASE_BYTES = 12
"""The size of a base: enough for years at the finest rates."""
_ONE = struct.Struct("<QI")
"""The only cell of a row, which starts at the base: id, tokens."""
_ONE_ROW = struct.Struct("<QiQI")
"""A row with one cell: the base in two parts, and `_ONE`. One call reads it."""
_UNTOLD = struct.Struct("<Qq")
"""What follows a row with one cell: the untold tokens, the time of the first, ns."""
_ONE_UNTOLD_ROW = struct.Struct("<QiQIQq")
"""A row with one cell and untold tokens. One call reads it, too."""
_MANY = struct.Struct("<qqqQqH")
"""The fields before the cells, from the base: TAT, latest start, floor; and the untold tokens, the
time of the first, ns, and the slot of its cell."""
_MANY_UNTOLD = struct.Struct("<QqH")
"""The last of them, which are about untold tokens."""
_LARGEST_ONE = _ONE_ROW.size + _UNTOLD.size
"""Any other row is larger."""
_NO_FLOOR = -(2**63)


def packed(cells: Cells, tat: int, floor: int | None, untold: tuple[int, int, int]) -> bytes | None:
    """Return a row with these cells, TAT and floor, if any; None: it has no cells, or does not fit.

    `untold` is the number of untold tokens, the time of the first, ns, and the slot of its cell.
    """
    if floor is None and len(cells) == 1:
        return packed_one(*next(iter(cells)), *untold[:2])
    if not cells or (data := cells.pack()) is None:
        return None
    base = cells.base
    ahead = _NO_FLOOR if floor is None else floor - base
    try:
        times = _MANY.pack(tat - base, cells.latest - base, ahead, *untold)
    except struct.error:
        return None
    return base.to_bytes(_BASE_BYTES, "little", signed=True) + times + data


def packed_one(start: int, entry: int, count: int, untold: int, since_ns: int) -> bytes:
    """Return a row with one cell and no floor."""
    row = start.to_bytes(_BASE_BYTES, "little", signed=True) + _ONE.pack(entry, count)
    return row + _UNTOLD.pack(untold, since_ns) if untold else row


def appended(
    data: bytes, oldest: int, cell: tuple[int, int, int], tat: int, untold: tuple[int, int, int]
) -> bytes | None:
    """Return a row with a last cell more (start, id, tokens), as `packed` would return it.

    None: the cells must be unpacked, as some begin before `oldest`, or there is no room. To unpack
    and pack them takes several times as long.
    """
    base = int.from_bytes(data[:_BASE_BYTES], "little", signed=True)
    if len(data) <= _LARGEST_ONE:
        floor, cells = _NO_FLOOR, packed_cells.one(*_ONE.unpack_from(data, _BASE_BYTES))
    else:
        _, _, floor, *_ = _MANY.unpack_from(data, _BASE_BYTES)
        cells = data[_BASE_BYTES + _MANY.size :]
        if base + floor <= oldest:
            # All cells that may still come start later.
            floor = _NO_FLOOR
    start, entry, count = cell
    all_cells = packed_cells.appended(cells, oldest - base, start - base, entry, count)
    if all_cells is None:
        return None
    try:
        times = _MANY.pack(tat - base, start - base, floor, *untold)
    except struct.error:
        return None
    return data[:_BASE_BYTES] + times + all_cells


def fields(data: bytes, per: int) -> tuple[int, int, int, int, int]:
    """Return the TAT and the latest start of a row, the untold tokens, the time of the first, ns,
    and the slot of its cell; a token takes `per` ticks."""
    size = len(data)
    if size <= _LARGEST_ONE:
        untold = since_ns = 0
        if size == _LARGEST_ONE:
            base, high, entry, count, untold, since_ns = _ONE_UNTOLD_ROW.unpack(data)
        else:
            base, high, entry, count = _ONE_ROW.unpack(data)
        if high:
            base += high << 64
        return base + count * per, base, untold, since_ns, entry % SLOTS
    base = int.from_bytes(data[:_BASE_BYTES], "little", signed=True)
    tat, latest, _, untold, since_ns, slot = _MANY.unpack_from(data, _BASE_BYTES)
    return base + tat, base + latest, untold, since_ns, slot


def told(data: bytes) -> bytes:
    """Return a row without its untold tokens."""
    if len(data) <= _LARGEST_ONE:
        return data[: _ONE_ROW.size]
    end = _BASE_BYTES + _MANY.size
    return data[: end - _MANY_UNTOLD.size] + bytes(_MANY_UNTOLD.size) + data[end:]


def unpacked(data: bytes) -> tuple[Cells, int | None]:
    """Return the cells of a row, and its floor; None: it has none."""
    base = int.from_bytes(data[:_BASE_BYTES], "little", signed=True)
    if len(data) > _LARGEST_ONE:
        _, _, floor, *_ = _MANY.unpack_from(data, _BASE_BYTES)
        cells = Cells.unpack(base, data[_BASE_BYTES + _MANY.size :])
        return cells, None if floor == _NO_FLOOR else base + floor
    entry, count = _ONE.unpack_from(data, _BASE_BYTES)
    return Cells([(base, entry, count)]), None
