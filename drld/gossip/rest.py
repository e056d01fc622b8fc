"""Whether a limit has to be spoken of: the rest of a fabric in which values are repeated.

Who wants nothing says so for `QUIET_ROUNDS` rounds, and then no more; what is not repeated counts
zero in the end, so that a lost last zero does no harm.
"""

from __future__ import annotations

QUIET_ROUNDS = 8
"""Rounds of nothing but zeros after which a fabric need not speak of them any more."""


class Rest:
    """One limit's."""

    __slots__ = ("_zeros", "others_want")

    def __init__(self) -> None:
        self._zeros = QUIET_ROUNDS
        """Rounds in which there was nothing to say."""
        self.others_want = False
        """Whether there was a remote demand at the last view, or may be since."""

    @property
    def quiet(self) -> bool:
        """See `Fabric.quiet`."""
        return self._zeros >= QUIET_ROUNDS and not self.others_want

    def speaks(self, wanted: bool) -> bool:
        """End a round in which something is `wanted`, or nothing; whether to say it."""
        if wanted:
            self._zeros = 0
        elif self._zeros >= QUIET_ROUNDS:
            return False
        else:
            self._zeros += 1
        return True
