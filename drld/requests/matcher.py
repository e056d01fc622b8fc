"""Finds the limits that a request falls under.

These are the limits of its namespace whose pairs are all in its descriptor. A limit with a bucket
for each key (`per`) takes only requests that have a key.

A limit is found by the first of its pairs. So a request costs one lookup for each of its pairs, and
not one for each limit; if no limit of the namespace names a pair, it costs none.
"""

from __future__ import annotations

from collections.abc import Collection, ItemsView, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Generic, TypeVar

from drld.requests.descriptor import Descriptor, shown
from drld.requests.spec import match_of
from drld.spec import LimitSpec

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Candidate(Generic[T]):
    """A limit whose first pair a request has."""

    place: int
    """The place of the limit in the configuration."""
    found: T
    more: ItemsView[str, str] | None
    """All pairs of the limit; None: the first is the only one."""
    per: tuple[str, ...]
    """The names that the descriptor must have."""

    def fits(self, descriptor: Descriptor) -> bool:
        """Return whether a request with the first pair falls under the limit."""
        # A loop, as `all` of a generator takes three times as long.
        for name in self.per:
            if name not in descriptor:
                return False
        return self.more is None or self.more <= descriptor.items()


@dataclass(frozen=True, slots=True)
class _Namespace(Generic[T]):
    """The limits of one namespace."""

    every: list[_Candidate[T]] = field(default_factory=list)
    """The limits that name no pair."""
    by_pair: dict[str, dict[str, list[_Candidate[T]]]] = field(default_factory=dict)
    """The other limits, by the name and the value of their first pair."""


class Matcher(Generic[T]):
    """The limits of one configuration."""

    def __init__(self, limits: Iterable[tuple[LimitSpec, T]]) -> None:
        """`limits` are in the order of the configuration, each with the value that `find` returns
        for it."""
        self._limits: list[LimitSpec] = []
        self._namespaces: dict[str, _Namespace[T]] = {}
        for place, (limit, found) in enumerate(limits):
            self._limits.append(limit)
            match = match_of(limit)
            pairs = match.where.items()
            # A request that has the first pair has all pairs of a limit with one.
            more = pairs if len(pairs) > 1 else None
            candidate = _Candidate(place, found, more, match.per)
            namespace = self._namespaces.setdefault(match.namespace, _Namespace())
            if pairs:
                name, value = min(pairs)
                namespace.by_pair.setdefault(name, {}).setdefault(value, []).append(candidate)
            else:
                namespace.every.append(candidate)

    def find(self, namespace: str, descriptor: Descriptor) -> list[T]:
        """Return the values of the limits that a request falls under, in the order of the
        configuration."""
        limits = self._namespaces.get(namespace)
        if limits is None:
            return []
        found = [it for it in limits.every if it.fits(descriptor)]
        by_pair = limits.by_pair
        if by_pair:
            for name in by_pair.keys() & descriptor.keys():
                candidates = by_pair[name].get(descriptor[name], ())
                found += [it for it in candidates if it.fits(descriptor)]
            if len(found) > 1:
                found.sort(key=attrgetter("place"))
        return [it.found for it in found]

    def uncovered(self, namespace: str) -> str:
        """Return the reason that no limit covers a request of this namespace, for people."""
        if namespace in self._namespaces:
            return "no limit covers this descriptor"
        return f"no limit has the namespace {shown(namespace)}"

    def named(self, namespace: str) -> Mapping[str, Collection[str]]:
        """Return the values that limits of a namespace name, by the name of the pair.

        Requests whose descriptors have the same names, and the same of these values, fall under the
        same limits.
        """
        found: dict[str, set[str]] = {}
        for limit in self._limits:
            match = match_of(limit)
            for name, value in match.where.items() if match.namespace == namespace else ():
                found.setdefault(name, set()).add(value)
        return found
