"""How many examples a property gets that is too dear, or too cheap, for as many as others get."""

from __future__ import annotations

from hypothesis import settings

_DAY, _NIGHT = 40, 1000
"""Examples of others in the profiles `default` and `thorough` (tests/conftest.py)."""


def examples(count: int) -> int:
    """`count`; and in a night as many times more as others get."""
    return count * (_NIGHT // _DAY if settings().max_examples >= _NIGHT else 1)
