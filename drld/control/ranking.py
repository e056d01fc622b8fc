"""The limits that a client asks for: the first few by some order, and those that match a name.

A live view of 10,000 limits shows 20. So the daemon compares all of them, some hundred between two
turns of other tasks, and makes reports of those 20 alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice
from typing import NamedTuple, cast, get_args
from urllib.parse import parse_qsl

from drld.control.schema.limits import SortKey
from drld.control.turns import Turns

SORT_KEYS: tuple[str, ...] = get_args(SortKey)
_BATCH = 500
"""The limits that are compared in one turn of the event loop: about 1 ms."""
_MOST = 2**32


class Rank(NamedTuple):
    """The sort key of a limit; the smallest comes first."""

    value: float | str
    id: int
    name: str


@dataclass(frozen=True, slots=True)
class Selection:
    """A query for limits, such as `sort=demand&count=20`."""

    sort: SortKey = "name"
    name: str = ""
    """A part of the limit's name, in upper or lower case; empty: the query wants any limit."""
    skip: int = 0
    """The number of limits that come before the first one of the answer."""
    count: int = _MOST

    @classmethod
    def read(cls, query: bytes) -> Selection:
        """Read a query string.

        Raises:
            ValueError: a key is unknown, or a value bad; the text says which.
        """
        given = dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True))
        if unknown := given.keys() - {"sort", "name", "skip", "count"}:
            raise ValueError(f"query: {min(unknown)}: unknown key: sort, name, skip or count")
        sort = given.get("sort", "name")
        if sort not in SORT_KEYS:
            raise ValueError(f"query: sort: must be one of {', '.join(SORT_KEYS)}")
        numbers = {key: given[key] for key in ("skip", "count") if key in given}
        for key, value in numbers.items():
            if not (value.isascii() and value.isdecimal() and len(value) < 10):
                raise ValueError(f"query: {key}: must be a whole number below 1000000000")
        return cls(
            cast(SortKey, sort),
            given.get("name", "").lower(),
            int(numbers.get("skip", 0)),
            int(numbers.get("count", _MOST)),
        )

    async def ids(self, ranks: Iterable[Rank], turns: Turns) -> tuple[list[int], int]:
        """Return the ids of the wanted limits, in their order, and the number of limits that match
        the name."""
        found: list[Rank] = []
        matching = 0
        rest = iter(ranks)
        while batch := list(islice(rest, _BATCH)):
            wanted = [rank for rank in batch if self.name in rank.name.lower()]
            matching += len(wanted)
            found = nsmallest(self.skip + self.count, [*found, *wanted])
            await turns.wait()
        return [rank.id for rank in found[self.skip :]], matching
