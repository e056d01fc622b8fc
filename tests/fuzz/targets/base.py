"""What a fuzz target is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TypeVar

from drld.errors import WireError

T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """Bytes from nobody knows whom, and what must hold whatever they are."""

    check: Callable[[bytes], bool]
    """Raises (AssertionError, or whatever else gets out) where the property does not hold; returns
    whether the input was accepted as valid."""
    seeds: Callable[[], Iterable[bytes]]
    """Valid inputs, from which a fuzzer begins."""
    words: tuple[bytes, ...] = ()
    """What such inputs are made of: a coverage-guided fuzzer does not find them by itself."""
    max_bytes: int = 4096
    """Of an input."""


def unless_refused(decode: Callable[[], T], reasons: Collection[str]) -> T | None:
    """What is decoded; None where it is refused for one of these reasons."""
    try:
        return decode()
    except WireError as error:
        reason = error.reason
    assert reason in reasons
    return None
