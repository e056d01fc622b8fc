"""The keys with untold tokens, by the time of their first one: 16 bytes each.

A key that was told since then, or whose row has left, stays until its time comes. The row itself
knows whether it has untold tokens, and since when.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import takewhile

from drld.requests.buckets.bucket import Key


class WaitingKeys:
    """Keys, the oldest first."""

    __slots__ = ("_keys", "_since")

    def __init__(self) -> None:
        self._keys = array("Q")
        self._since = array("q")
        """The times of the first untold tokens, ns."""

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys)

    def add(self, key: Key, since_ns: int) -> None:
        """Add a key, whose first untold token is the latest."""
        self._keys.append(key)
        self._since.append(since_ns)

    def take(self, before_ns: int) -> Sequence[Key]:
        """Remove the keys that were added at this time or earlier, and return them."""
        count = sum(1 for _ in takewhile(before_ns.__ge__, self._since))
        taken = self._keys[:count]
        del self._keys[:count], self._since[:count]
        return taken
