"""A descriptor: what a request is about, as pairs of texts such as `user=alice`.

Strangers may choose what is in one, so its size is bounded before anything looks at it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from drld.errors import InputError

Descriptor: TypeAlias = Mapping[str, str]

MAX_PAIRS = 8
MAX_BYTES = 256
"""Of all names and values of a descriptor together, in UTF-8."""
RESERVED = ("namespace", "cost", "bytes", "caller", "at_least", "charge", "refused")
"""Names that mean something else in a query (`drld.requests.question`)."""


class TooLargeError(InputError):
    """Pairs of more bytes than a descriptor may have."""


def check(descriptor: Mapping[str, object]) -> Descriptor:
    """The descriptor that these pairs are.

    Raises:
        InputError: they are none.
        TooLargeError: they are too many bytes.
    """
    if len(descriptor) > MAX_PAIRS:
        raise InputError(f"a descriptor must have {MAX_PAIRS} pairs at most")
    size = 0
    for name, value in descriptor.items():
        if not name:
            raise InputError("a name in a descriptor must not be empty")
        if name in RESERVED:
            raise InputError(f"{name}: is no name for a descriptor, as a query uses it")
        if not isinstance(value, str):
            raise InputError("a value in a descriptor must be a text")
        size += _size(name) + _size(value)
    if size > MAX_BYTES:
        raise TooLargeError(f"a descriptor must have {MAX_BYTES} bytes at most")
    return {name: str(value) for name, value in descriptor.items()}


def _size(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise InputError("a descriptor must be text in UTF-8") from None
