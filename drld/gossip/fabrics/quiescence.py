"""Whether a limit is quiescent, in a fabric that repeats its values.

A limiter that wants nothing says so for `QUIET_ROUNDS` rounds, and then falls silent. A value that
is not repeated counts zero in the end, so a lost last zero does no harm.
"""

from __future__ import annotations

QUIET_ROUNDS = 8
"""Rounds of nothing but zeros after which a fabric falls silent about the limit."""


class Quiescence:
    """The state of one limit."""

    __slots__ = ("_zeros", "others_want")

    def __init__(self) -> None:
        self._zeros = QUIET_ROUNDS
        """Rounds in a row with nothing wanted."""
        self.others_want = False
        """Whether there was a remote demand at the last view, or may be since."""

    @property
    def quiet(self) -> bool:
        """See `Fabric.quiet`."""
        return self._zeros >= QUIET_ROUNDS and not self.others_want

    def speaks(self, wanted: bool) -> bool:
        """End a round in which the limit is `wanted` or not; returns whether to send its value."""
        if wanted:
            self._zeros = 0
        elif self._zeros >= QUIET_ROUNDS:
            return False
        else:
            self._zeros += 1
        return True
