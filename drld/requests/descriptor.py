"""A descriptor: the pairs of texts that describe a request, such as `user=alice`.

Strangers may choose the pairs, so their size is bounded before any other code reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from drld.client.protocol.long_value import shortened
from drld.errors import InputError

Descriptor: TypeAlias = Mapping[str, str]

MAX_PAIRS = 8
MAX_BYTES = 256
"""The most bytes of all names and values of a descriptor together, in UTF-8."""
_SHOWN = 64
"""The most characters of a name in an error."""
RESERVED = ("namespace", "cost", "bytes", "caller", "at_least", "charge", "refused")
"""Names that a query uses for other purposes (`drld.requests.question`)."""


class TooLargeError(InputError):
    """A descriptor has too many bytes."""


def check(descriptor: Mapping[str, object]) -> Descriptor:
    """Return the descriptor with these pairs; long values are replaced (`shortened`).

    Raises:
        InputError: the pairs are no descriptor.
        TooLargeError: the pairs have too many bytes.
    """
    if len(descriptor) > MAX_PAIRS:
        raise InputError(
            f"a descriptor must have {MAX_PAIRS} pairs at most (got {len(descriptor)})"
        )
    size = 0
    found: dict[str, str] = {}
    for name, value in descriptor.items():
        if not name:
            raise InputError("a name in a descriptor must not be empty")
        if name in RESERVED:
            raise InputError(f"{name}: is no name for a descriptor, as a query uses it")
        if not isinstance(value, str):
            raise InputError(f"{shown(name)}: must be a text")
        _size(name, value)
        found[name] = short = shortened(value)
        size += _size(name, name) + len(short.encode())
    if size > MAX_BYTES:
        raise TooLargeError(f"a descriptor must have {MAX_BYTES} bytes at most (got {size})")
    return found


def shown(name: str) -> str:
    """Return a name of a stranger's for an error: short, and without control characters."""
    return name[:_SHOWN] if name[:_SHOWN].isprintable() else ascii(name[:_SHOWN])


def _size(name: str, text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise InputError(f"{shown(name)}: must be text in UTF-8") from None
