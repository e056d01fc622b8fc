"""Which limits a request falls under: those of its namespace whose pairs are all in its descriptor.

A limit with a bucket for each key (`per`) takes only requests that have a key.

A limit is found by the first of its pairs, so a request costs as many lookups as it has pairs, and
not one for each limit.
"""

from __future__ import annotations

from collections.abc import Iterable

from drld.requests.descriptor import Descriptor
from drld.requests.spec import match_of
from drld.spec import LimitSpec

_Pair = tuple[str, str] | None


class Matcher:
    """The limits of one configuration."""

    def __init__(self, limits: Iterable[LimitSpec]) -> None:
        self._found: dict[tuple[str, _Pair], list[tuple[int, LimitSpec]]] = {}
        for place, limit in enumerate(limits):
            match = match_of(limit)
            first: _Pair = min(match.where.items(), default=None)
            self._found.setdefault((match.namespace, first), []).append((place, limit))

    def limits(self, namespace: str, descriptor: Descriptor) -> list[LimitSpec]:
        """The limits that a request falls under, in the order of the configuration."""
        pairs = descriptor.items()
        found = [
            candidate
            for pair in (None, *pairs)
            for candidate in self._found.get((namespace, pair), ())
            if (match := match_of(candidate[1])).where.items() <= pairs
            and all(name in descriptor for name in match.per)
        ]
        found.sort(key=lambda candidate: candidate[0])
        return [limit for _, limit in found]
