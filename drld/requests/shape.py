"""Requests of one namespace whose descriptors have the same names, in the same order.

A service asks about thousands of users, and always with the same names. The limits of a request
follow from the names and from the few values that limits name (`Matcher.named`). So the names are
matched once, and each request is matched by those values alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Generic, TypeVar

from drld.client.protocol.long_value import MAX_VALUE_BYTES
from drld.requests.descriptor import MAX_BYTES, Descriptor

T = TypeVar("T")
_MAX_CHOICES = 64
"""The combinations of values that a shape remembers: a bound, since strangers choose the values."""


class Shape(Generic[T]):
    """One namespace, and the names of a descriptor."""

    __slots__ = ("_chosen", "_find", "_found", "_names", "_room")

    def __init__(
        self,
        names: Sequence[str],
        named: Mapping[str, Collection[str]],
        find: Callable[[Descriptor], Sequence[T]],
    ) -> None:
        """Make the shape of a namespace.

        Args:
            names: the names of the descriptor.
            named: the values that limits name, by name.
            find: finds the limits of a descriptor.
        """
        self._names = names
        self._find = find
        self._chosen = [
            (place, frozenset(value.encode() for value in named[name]))
            for place, name in enumerate(names)
            if name in named
        ]
        self._found: dict[tuple[bytes | None, ...], Sequence[T]] = {}
        room = MAX_BYTES - sum(len(name.encode()) for name in names)
        self._room = min(room, MAX_VALUE_BYTES)
        """The most bytes of all values together: none of them is too long."""

    def find(self, values: Sequence[bytes]) -> Sequence[T] | None:
        """Return the limits of a request with these values; adjacent requests often get the same
        object.

        None: the values are not surely those of a descriptor, which are ASCII and not too long.
        """
        data = b"".join(values)
        if len(values) != len(self._names) or len(data) > self._room or not data.isascii():
            return None
        choice: tuple[bytes | None, ...] = ()
        for place, named in self._chosen:
            value = values[place]
            choice += (value if value in named else None,)
        found = self._found.get(choice)
        if found is None:
            texts = [value.decode() for value in values]
            found = self._find(dict(zip(self._names, texts, strict=True)))
            if len(self._found) >= _MAX_CHOICES:
                self._found.clear()
            self._found[choice] = found
        return found
