"""The type of a fuzz target."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TypeVar

from drld.errors import WireError

T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """A parser of foreign bytes, and the properties that hold for any of them."""

    check: Callable[[bytes], bool]
    """Raises (AssertionError, or whatever else gets out) where the property does not hold; returns
    whether the input was accepted as valid."""
    seeds: Callable[[], Iterable[bytes]]
    """Valid inputs, from which a fuzzer begins."""
    words: tuple[bytes, ...] = ()
    """Words of such inputs, which a coverage-guided fuzzer does not find by itself."""
    max_bytes: int = 4096
    """The largest size of an input."""


def unless_refused(decode: Callable[[], T], reasons: Collection[str]) -> T | None:
    """The decoded value; None: it was refused for one of these reasons."""
    try:
        return decode()
    except WireError as error:
        reason = error.reason
    assert reason in reasons
    return None
