"""The bytes of deltas as Erlang terms, which the thesis' nodes sent each other.

The thesis does not say how it counted bytes. This is the external term format of its runtime, where
limiters have small numbers as names. Bytes: a user's 32 characters 37, a map 5, a list 6, a tuple 2
and its elements, a number below 256 2, one of 32 bits 5, a time or a real number 9.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drld.requests.buckets.bucket import Key
from drld.requests.buckets.delta_codec import Form

_USER, _MAP, _LIST, _TUPLE, _SMALL, _WORD, _TIME = 37, 5, 6, 2, 2, 5, 9


def _number(value: int) -> int:
    return _SMALL if value < 256 else _WORD


def term_bytes(deltas: Mapping[Key, Any], form: Form) -> int:
    """Return the bytes of a message with these deltas; without any there is no message."""
    if not deltas:
        return 0
    size = 1 + _MAP + _USER * len(deltas)
    for delta in deltas.values():
        if form is Form.COUNTER:
            counts = sum(_SMALL + _number(count) for _, count in delta.counts)
            size += _TUPLE + _MAP + counts + 2 * _TIME
        elif form is Form.QUEUE:
            size += _LIST + (_TUPLE + 2 * _TIME) * len(delta)
        else:
            fixed = _TUPLE + _SMALL + 2 * _WORD
            size += _LIST + sum(fixed + _number(cell.tokens) for cell in delta)
    return size
