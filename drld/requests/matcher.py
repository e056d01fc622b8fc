"""Which limits a request falls under: those of its namespace whose pairs are all in its descriptor.

A limit with a bucket for each key (`per`) takes only requests that have a key.

A limit is found by the first of its pairs, so a request costs as many lookups as it has pairs, and
not one for each limit.
"""

from __future__ import annotations

from collections.abc import Collection, ItemsView, Iterable
from operator import attrgetter
from typing import NamedTuple

from drld.requests.descriptor import Descriptor
from drld.requests.spec import match_of
from drld.spec import LimitSpec

_Pair = tuple[str, str] | None


class _Candidate(NamedTuple):
    """A limit of the first pair that a request has."""

    place: int
    """In the configuration."""
    limit: LimitSpec
    more: ItemsView[str, str] | None
    """All pairs, where there are more than the first."""
    per: Collection[str]
    """Names that the descriptor must have."""


class Matcher:
    """The limits of one configuration."""

    def __init__(self, limits: Iterable[LimitSpec]) -> None:
        self._found: dict[tuple[str, _Pair], list[_Candidate]] = {}
        for place, limit in enumerate(limits):
            match = match_of(limit)
            pairs = match.where.items()
            first: _Pair = min(pairs, default=None)
            # Who has the first pair has all of one.
            more = pairs if len(pairs) > 1 else None
            candidate = _Candidate(place, limit, more, match.per)
            self._found.setdefault((match.namespace, first), []).append(candidate)

    def limits(self, namespace: str, descriptor: Descriptor) -> list[LimitSpec]:
        """The limits that a request falls under, in the order of the configuration."""
        pairs = descriptor.items()
        found = [
            candidate
            for pair in (None, *pairs)
            for candidate in self._found.get((namespace, pair), ())
            if (candidate.more is None or candidate.more <= pairs)
            and (not candidate.per or all(name in descriptor for name in candidate.per))
        ]
        if len(found) > 1:
            found.sort(key=attrgetter("place"))
        return [candidate.limit for candidate in found]
