"""Tokens for the first packets of a flow that begins at an idle limiter (paper, section 3.2.2).

An idle limiter has a local limit of zero, and its bucket may be empty. Without a credit it would
drop a SYN, and the flow could not show its demand. So a limiter gets one credit when it falls idle.
"""

from __future__ import annotations

from dataclasses import replace

from drld.model import Enforcement


class StartCredit:
    """Grants tokens each time that a limiter falls idle."""

    __slots__ = ("_credit_id", "_granted")

    def __init__(self) -> None:
        self._credit_id = 0
        self._granted = False

    def added_to(self, enforcement: Enforcement, size: int, *, idle: bool) -> Enforcement:
        """Add the last credit granted, of `size` tokens. Call this once an interval."""
        if idle and not self._granted:
            self._credit_id += 1
        self._granted = idle
        credit = size if self._credit_id else 0
        return replace(enforcement, credit=credit, credit_id=self._credit_id)
