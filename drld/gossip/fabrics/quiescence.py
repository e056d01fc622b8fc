"""The quiescence of a limit, in a fabric that repeats its values.

A limiter without demand sends zeros for `QUIET_ROUNDS` rounds, and then stops sending. A value that
is not repeated counts zero in the end, so a lost last zero does no harm.
"""

from __future__ import annotations

QUIET_ROUNDS = 8
"""Consecutive rounds of zeros after which a fabric stops sending for the limit."""


class Quiescence:
    """The quiescence of one limit, on one limiter."""

    __slots__ = ("_zeros", "others_want")

    def __init__(self) -> None:
        self._zeros = QUIET_ROUNDS
        """Consecutive rounds without demand."""
        self.others_want = False
        """Whether there was a remote demand at the last view, or may have come since."""

    @property
    def quiet(self) -> bool:
        """See `Fabric.quiet`."""
        return self._zeros >= QUIET_ROUNDS and not self.others_want

    def speaks(self, wanted: bool) -> bool:
        """End a round; return whether to send a value. `wanted`: whether there is demand."""
        if wanted:
            self._zeros = 0
        elif self._zeros >= QUIET_ROUNDS:
            return False
        else:
            self._zeros += 1
        return True
